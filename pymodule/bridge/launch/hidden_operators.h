// Hides the operators that a CPU kernel calls.
#pragma once

namespace openreg {

// While it exists, PyTorch's profilers and other observers of operators do not see the operators
// that the calling thread runs. A CPU kernel may call other operators on CPU tensors. To a program
// they are a part of the launch: they give no work to the device and do not exist on a GPU.
class HiddenOperators {
public:
  explicit HiddenOperators(bool hides = true) : hides_(hides) {
    if (hides_) {
      begin();
    }
  }
  ~HiddenOperators() {
    if (hides_) {
      end();
    }
  }
  // Whether the calling thread runs a kernel of a launch.
  static bool exist();
  HiddenOperators(const HiddenOperators &) = delete;
  HiddenOperators &operator=(const HiddenOperators &) = delete;

private:
  void begin();
  void end();

  bool hides_;
  bool is_observed_ = false; // there are observers, which this object has switched off
};

} // namespace openreg
