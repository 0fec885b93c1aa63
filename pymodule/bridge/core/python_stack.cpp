#include "core/python_stack.h"

#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/pythoncapi_compat.h>

#include <mutex>
#include <utility>

namespace py = pybind11;

namespace openreg {

namespace {

bool is_python_running() {
  return Py_IsInitialized() != 0 && Py_IsFinalizing() == 0;
}

// References to code objects that a thread without the GIL gave up. A thread that holds the GIL
// releases them. Never destroyed.
struct DeferredDecref {
  std::mutex mutex;
  std::vector<PyCodeObject *> codes;

  static DeferredDecref &get() {
    static auto &one = *new DeferredDecref;
    return one;
  }

  void release() {
    std::vector<PyCodeObject *> taken;
    {
      const std::lock_guard lock(mutex);
      taken.swap(codes);
    }
    for (auto *code : taken) {
      Py_DECREF(code);
    }
  }
};

std::string text_of(PyObject *unicode) {
  const char *const utf8 = PyUnicode_AsUTF8(unicode);
  if (utf8 == nullptr) {
    PyErr_Clear();
    return "?";
  }
  return utf8;
}

} // namespace

bool has_python_stack() {
  return is_python_running() && PyGILState_GetThisThreadState() != nullptr;
}

void walk_python_stack(const std::function<bool(PyCodeObject *code, int instruction)> &visit) {
  auto *frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr) {
    auto *const code = PyFrame_GetCode(frame);
    const bool goes_on = visit(code, PyFrame_GetLasti(frame));
    Py_DECREF(code);
    auto *const outer = goes_on ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(std::exchange(frame, outer));
  }
}

FrameText describe_frame(PyCodeObject *code, int instruction) {
  return {text_of(code->co_name), text_of(code->co_filename), PyCode_Addr2Line(code, instruction)};
}

std::shared_ptr<const PythonStack> PythonStack::capture() {
  auto stack = std::make_shared<PythonStack>();
  if (!has_python_stack()) {
    return stack;
  }
  const py::gil_scoped_acquire gil;
  DeferredDecref::get().release();
  walk_python_stack([&](PyCodeObject *code, int instruction) {
    Py_INCREF(code);
    stack->frames_.push_back({code, instruction});
    return true;
  });
  return stack;
}

PythonStack::~PythonStack() {
  auto &deferred = DeferredDecref::get();
  const std::lock_guard lock(deferred.mutex);
  for (const auto &frame : frames_) {
    deferred.codes.push_back(frame.code);
  }
}

std::vector<FrameText> PythonStack::describe() const {
  std::vector<FrameText> texts;
  if (frames_.empty() || !is_python_running()) {
    return texts;
  }
  const py::gil_scoped_acquire gil;
  for (const auto &frame : frames_) {
    texts.push_back(describe_frame(frame.code, frame.instruction));
  }
  return texts;
}

} // namespace openreg
