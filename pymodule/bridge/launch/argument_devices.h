// Finds the device of a launch from its arguments, and checks that they belong together.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKeySet.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "tensor/device_tensor.h"

namespace openreg {

constexpr c10::DispatchKeySet kCpuKernel(c10::DispatchKey::CPU);

// The operator that this thread launched last, for messages and graph nodes. The name lives as long
// as the operator is registered.
extern constinit thread_local const char *last_launch __attribute__((tls_model("initial-exec")));

// Give it all arguments in the schema's order, each by one call: check(), check_number(), skip() or
// a List. Then ask for index().
class ArgumentDevices {
public:
  ArgumentDevices(const char *name, const char *overload) : name_(name), overload_(overload) {}

  void check(const at::Tensor &tensor) {
    const auto *impl = tensor.unsafeGetTensorImpl();
    if (impl->key_set().has_backend(kDeviceKeys.component)) [[likely]] {
      const auto index = impl->device().index();
      elements_ += impl->numel();
      largest_ = std::max(largest_, impl->numel());
      if (index_ < 0) {
        index_ = index;
        first_ = position_;
      } else if (index_ != index) {
        refuse(impl->device(), position_);
      }
    } else if (tensor.defined()) {
      has_number_ = true;
      if (!impl->is_wrapped_number()) {
        check_host_tensor(tensor);
      }
    }
    position_ += kArgument;
  }

  // An argument that holds no tensor.
  void skip() { position_ += kArgument; }
  // A Python number or at::Scalar.
  void check_number() {
    has_number_ = true;
    skip();
  }

  // A tensor list is one argument. Make a List before its first tensor and destroy it after the
  // last.
  class List {
  public:
    explicit List(ArgumentDevices &devices) : devices_(devices), argument_(devices.position_) {}
    ~List() { devices_.position_ = argument_ + kArgument; }
    List(const List &) = delete;
    List &operator=(const List &) = delete;

    void check(const at::Tensor &tensor) {
      devices_.position_ = argument_ + std::min(elements_++, kArgument - 1);
      devices_.check(tensor);
    }
    void check_written(const at::Tensor &tensor) { devices_.check_written(tensor); }

  private:
    ArgumentDevices &devices_;
    const int argument_;
    int elements_ = 0;
  };

  // Call this in addition for a tensor that the kernel writes to: it must be on the device, even if
  // it is a scalar.
  void check_written(const at::Tensor &tensor) {
    smallest_written_ = std::min(smallest_written_, tensor.numel());
    if (tensor.is_cpu() && !misplaced_.has_value()) [[unlikely]] {
      misplaced_ = tensor.device();
    }
  }

  // Returns the index of the launch's device: the current device if no argument has one. Raises
  // CUDA's error if the arguments are on different devices, or if the process is a fork of one that
  // used the devices. Sets last_launch.
  c10::DeviceIndex index() const {
    if (misplaced_.has_value()) [[unlikely]] {
      refuse(*misplaced_, misplaced_position_);
    }
    if (openreg_in_bad_fork()) [[unlikely]] {
      raise(OPENREG_BAD_FORK);
    }
    last_launch = name_;
    return index_ < 0 ? static_cast<c10::DeviceIndex>(openreg_device_current()) : index_;
  }

  // The number of elements of all tensors on the device.
  int64_t elements() const { return elements_; }

  // Returns the size in bytes up to which the kernel's allocations stay on the host.
  //
  // A CPU kernel converts a number argument in a temporary tensor; a GPU kernel does so in a
  // register. So that tensor must not come from the device's memory. It is recognized by its size,
  // if nothing else that the kernel may allocate is as small: results have as many elements as the
  // largest argument, and a resized tensor as many as the written ones.
  uint8_t host_bytes(bool has_results) const {
    const auto fewest = has_results ? (has_number_ ? largest_ : 0) : smallest_written_;
    return fewest > kNumberBytes ? kNumberBytes : 0;
  }

private:
  void check_host_tensor(const at::Tensor &tensor);
  [[noreturn]] void refuse(c10::Device other, int position) const;

  // A position is the argument's index in the schema times this, plus the index within its list.
  static constexpr int kArgument = 1 << 16;
  static constexpr uint8_t kNumberBytes = 16; // one complex128, the largest dtype

  const char *name_;
  const char *overload_;
  c10::DeviceIndex index_ = -1;
  int64_t elements_ = 0;
  int64_t largest_ = 0; // elements of the largest tensor
  int64_t smallest_written_ = std::numeric_limits<int64_t>::max();
  bool has_number_ = false;
  int position_ = 0;                     // of the next tensor
  int first_ = 0;                        // the position of the tensor that set index_
  std::optional<c10::Device> misplaced_; // the device of the first tensor that must not be there
  int misplaced_position_ = 0;
};

} // namespace openreg
