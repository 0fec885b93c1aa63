// Hides the operators that a CPU kernel calls.
#pragma once

#include <ATen/record_function.h>

namespace openreg {

// While it exists, PyTorch's profilers and other observers of operators do not see the operators
// that the calling thread runs. A CPU kernel may call other operators on CPU tensors. To a program
// they are a part of the launch: they give no work to the device and do not exist on a GPU.
class HiddenOperators {
public:
  explicit HiddenOperators(bool hides = true) : hides_(hides && at::isRecordFunctionEnabled()) {
    if (hides_) {
      at::enableRecordFunction(false);
    }
  }
  ~HiddenOperators() {
    if (hides_) {
      at::enableRecordFunction(true);
    }
  }
  // Whether the calling thread runs a kernel of a launch.
  static bool exist() { return !at::isRecordFunctionEnabled(); }
  HiddenOperators(const HiddenOperators &) = delete;
  HiddenOperators &operator=(const HiddenOperators &) = delete;

private:
  bool hides_;
};

} // namespace openreg
