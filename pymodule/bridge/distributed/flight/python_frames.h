// Where a Python program is: the stack of a call, kept until somebody wants to read it.
//
// PyTorch's CapturedTraceback does as much, and imports a compiler, for seconds, when it is first
// read: whoever records why a job fails has not so long.
#pragma once

#include <c10/util/SmallVector.h>

#include <memory>
#include <string>
#include <vector>

namespace openreg {

struct FrameText {
  std::string name, filename;
  int line;
};

class PythonFrames {
public:
  // Of this thread, which may have the GIL or not. Empty on a thread that is not Python's.
  static std::shared_ptr<const PythonFrames> here();

  // From the innermost. Takes the GIL.
  std::vector<FrameText> read() const;

  PythonFrames() = default;
  ~PythonFrames(); // on any thread, without the GIL
  PythonFrames(const PythonFrames &) = delete;
  PythonFrames &operator=(const PythonFrames &) = delete;

private:
  struct Frame {
    void *code; // a code object
    int instruction;
  };
  c10::SmallVector<Frame, 8> frames_;
};

} // namespace openreg
