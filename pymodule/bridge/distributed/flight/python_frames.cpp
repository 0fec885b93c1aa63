#include "distributed/flight/python_frames.h"

#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/pythoncapi_compat.h>

#include <mutex>
#include <utility>

namespace py = pybind11;

namespace openreg {

namespace {

// Code objects that nobody wants any more, until somebody has the GIL. Never destroyed.
struct Unwanted {
  std::mutex mutex;
  std::vector<void *> codes;

  static Unwanted &get() {
    static auto &one = *new Unwanted;
    return one;
  }

  void release() {
    std::vector<void *> taken;
    {
      const std::lock_guard lock(mutex);
      taken.swap(codes);
    }
    for (auto *code : taken) {
      Py_DECREF(static_cast<PyObject *>(code));
    }
  }
};

bool has_python() {
  return Py_IsInitialized() != 0 && Py_IsFinalizing() == 0;
}

} // namespace

std::shared_ptr<const PythonFrames> PythonFrames::here() {
  auto found = std::make_shared<PythonFrames>();
  if (!has_python() || PyGILState_GetThisThreadState() == nullptr) {
    return found;
  }
  const py::gil_scoped_acquire gil;
  Unwanted::get().release();
  auto *frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr) {
    found->frames_.push_back({PyFrame_GetCode(frame), PyFrame_GetLasti(frame)});
    Py_DECREF(std::exchange(frame, PyFrame_GetBack(frame)));
  }
  return found;
}

PythonFrames::~PythonFrames() {
  auto &unwanted = Unwanted::get();
  const std::lock_guard lock(unwanted.mutex);
  for (const auto &frame : frames_) {
    unwanted.codes.push_back(frame.code);
  }
}

std::vector<FrameText> PythonFrames::read() const {
  std::vector<FrameText> texts;
  if (frames_.empty() || !has_python()) {
    return texts;
  }
  const py::gil_scoped_acquire gil;
  for (const auto &frame : frames_) {
    auto *const code = static_cast<PyCodeObject *>(frame.code);
    texts.push_back({py::str(py::handle(code->co_name)), py::str(py::handle(code->co_filename)),
                     PyCode_Addr2Line(code, frame.instruction)});
  }
  return texts;
}

} // namespace openreg
