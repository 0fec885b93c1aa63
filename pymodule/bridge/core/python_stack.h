// Python call stacks: walking the stack of the calling thread, and keeping one to read later.
//
// PyTorch's CapturedTraceback keeps stacks, too. But it imports a compiler when a stack is first
// read, which takes seconds, and a process that records why a job fails does not have that long.
// Only the memory history uses it: there PyTorch's snapshot format includes frames of TorchScript
// and C++.
#pragma once

#include <c10/util/SmallVector.h>
#include <torch/csrc/python_headers.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace openreg {

// A frame as text.
struct FrameText {
  std::string name, filename;
  int line;
};

// Returns whether the calling thread can have Python frames: it has held the GIL at some time, and
// the interpreter runs. The thread need not hold the GIL now.
bool has_python_stack();

// Calls `visit` with the code object and the current instruction (in bytes) of each frame of the
// calling thread, innermost first, until it returns false. The code object is borrowed. The caller
// holds the GIL.
void walk_python_stack(const std::function<bool(PyCodeObject *code, int instruction)> &visit);

// The caller holds the GIL.
FrameText describe_frame(PyCodeObject *code, int instruction);

// The stack of a thread. It keeps the code objects of its frames alive, but not the frames.
class PythonStack {
public:
  // Captures the calling thread's stack. Takes the GIL if needed. Empty if has_python_stack() is
  // false.
  static std::shared_ptr<const PythonStack> capture();

  // The frames as text, innermost first. Takes the GIL.
  std::vector<FrameText> describe() const;

  PythonStack() = default;
  // Any thread, with or without the GIL: the next capture() releases the code objects.
  ~PythonStack();
  PythonStack(const PythonStack &) = delete;
  PythonStack &operator=(const PythonStack &) = delete;

private:
  struct Frame {
    PyCodeObject *code;
    int instruction;
  };
  c10::SmallVector<Frame, 8> frames_;
};

} // namespace openreg
