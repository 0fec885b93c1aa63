#include "memory/observation/debug_memory.h"

#include <torch/csrc/utils/pybind.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "allocator/allocator.h"
#include "core/status.h"

namespace py = pybind11;

namespace openreg {

namespace {

bool is_debugging() {
  const openreg_config *config = nullptr;
  return openreg_config_get(&config) == OPENREG_OK && config->debug_memory;
}

void append_line(std::string &text, PyFrameObject *frame) {
  const auto code =
      py::reinterpret_steal<py::object>(reinterpret_cast<PyObject *>(PyFrame_GetCode(frame)));
  text += "  File \"" + py::str(code.attr("co_filename")).cast<std::string>() + "\", line " +
          std::to_string(PyFrame_GetLineNumber(frame)) + ", in " +
          py::str(code.attr("co_name")).cast<std::string>() + "\n";
}

// Returns the stack of this thread's Python code as text. Text holds no Python object, which only a
// thread with the GIL could release. NULL if there is no Python.
void *capture() {
  if (Py_IsInitialized() == 0 || Py_IsFinalizing() != 0) {
    return nullptr;
  }
  const py::gil_scoped_acquire gil;
  std::string text;
  auto frame = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(PyEval_GetFrame()));
  for (int i = 0; frame && i < OPENREG_DEBUG_STACK_FRAMES; ++i) {
    auto *const current = reinterpret_cast<PyFrameObject *>(frame.ptr());
    append_line(text, current);
    frame =
        py::reinterpret_steal<py::object>(reinterpret_cast<PyObject *>(PyFrame_GetBack(current)));
  }
  return text.empty() ? nullptr : strdup(text.c_str());
}

char *describe(void *stack) {
  return stack == nullptr ? nullptr : strdup(static_cast<const char *>(stack));
}

void drop(void *stack) {
  std::free(stack);
}

} // namespace

void install_debug_stacks() {
  static constexpr openreg_stack_provider stacks = {&capture, &describe, &drop};
  openreg_memory_set_stack_provider(&stacks);
}

void check_memory_damage(int device) {
  if (is_debugging()) [[unlikely]] {
    check(openreg_memory_check(device));
  }
}

void check_memory_damage_at_exit() {
  if (!is_debugging() || !openreg_is_initialized() || openreg_in_bad_fork()) {
    return;
  }
  int count = 0;
  check(openreg_device_count(&count));
  for (int device = 0; device < count; ++device) {
    (void)openreg_memory_check(device); // writes its findings to stderr
  }
}

} // namespace openreg
