#include "memory/observation/debug_memory.h"

#include <torch/csrc/utils/pybind.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "allocator/allocator.h"
#include "core/python_stack.h"
#include "core/status.h"

namespace py = pybind11;

namespace openreg {

namespace {

bool is_debugging() {
  const openreg_config *config = nullptr;
  return openreg_config_get(&config) == OPENREG_OK && config->debug_memory;
}

// Returns the stack of this thread's Python code as text. Text holds no Python object, which only a
// thread with the GIL could release. NULL if there is no Python.
void *capture() {
  if (Py_IsInitialized() == 0 || Py_IsFinalizing() != 0) {
    return nullptr;
  }
  const py::gil_scoped_acquire gil;
  std::string text;
  int left = OPENREG_DEBUG_STACK_FRAMES;
  walk_python_stack([&](PyCodeObject *code, int instruction) {
    const auto frame = describe_frame(code, instruction);
    text += "  File \"" + frame.filename + "\", line " + std::to_string(frame.line) + ", in " +
            frame.name + "\n";
    return --left > 0;
  });
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
