// The one door through which every operator enters.
//
// A launch checks what CUDA checks (every tensor on one device), gives each tensor argument its
// CPU twin, calls PyTorch's CPU kernel below autograd with CPU allocations redirected to the
// device, and gives the results back as device tensors:
//   - a result in memory that the kernel allocated is handed over, without a copy;
//   - a result that is, or looks into, an argument's twin becomes that argument, or a view of it;
//   - a result in other memory (a constant that the kernel keeps, say) is copied to the device.
// The typed door (typed.h) does this for operators known at compile time, the boxed one
// (boxed_operator.cpp) for every other operator that has a CPU kernel.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "tensor/device_tensor.h"

namespace openreg {

constexpr c10::DispatchKeySet kCpuKernel(c10::DispatchKey::CPU);

// The operator that this thread launched last, for sentences that must name one. The name lives as
// long as the operator is registered.
extern constinit thread_local const char *last_launch __attribute__((tls_model("initial-exec")));

// The device of a launch, found from its arguments, all of which it sees in the schema's order.
class LaunchDevice {
public:
  LaunchDevice(const char *name, const char *overload) : name_(name), overload_(overload) {}

  void see(const at::Tensor &tensor) {
    const auto *impl = tensor.unsafeGetTensorImpl();
    if (impl->key_set().has_backend(kDeviceKeys.component)) [[likely]] {
      const auto index = impl->device().index();
      elements_ += impl->numel();
      largest_ = std::max(largest_, impl->numel());
      if (index_ < 0) {
        index_ = index;
        first_ = seen_;
      } else if (index_ != index) {
        refuse(impl->device(), seen_);
      }
    } else if (tensor.defined()) {
      has_number_ = true;
      if (!impl->is_wrapped_number()) {
        see_host_tensor(tensor);
      }
    }
    seen_ += kArgument;
  }

  // An argument that holds no tensor.
  void skip() { seen_ += kArgument; }
  void see_number() {
    has_number_ = true;
    skip();
  }

  // The tensors of a list are one argument: a List is begun before the first is seen, and dropped
  // after the last.
  class List {
  public:
    explicit List(LaunchDevice &where) : where_(where), argument_(where.seen_) {}
    ~List() { where_.seen_ = argument_ + kArgument; }
    List(const List &) = delete;
    List &operator=(const List &) = delete;

    void see(const at::Tensor &tensor) {
      where_.seen_ = argument_ + std::min(elements_++, kArgument - 1);
      where_.see(tensor);
    }
    void see_written(const at::Tensor &tensor) { where_.see_written(tensor); }

  private:
    LaunchDevice &where_;
    const int argument_;
    int elements_ = 0;
  };

  // A tensor that the kernel writes to lies on the device, scalar or not.
  void see_written(const at::Tensor &tensor) {
    smallest_written_ = std::min(smallest_written_, tensor.numel());
    if (tensor.is_cpu() && !stranger_.has_value()) [[unlikely]] {
      stranger_ = tensor.device();
    }
  }

  // For an operator whose arguments name no device: the current one. Raises what CUDA raises when
  // the arguments do not belong together, or the process was forked from one that had devices.
  c10::DeviceIndex index() const {
    if (stranger_.has_value()) [[unlikely]] {
      refuse(*stranger_, stranger_position_);
    }
    if (openreg_in_bad_fork()) [[unlikely]] {
      raise(OPENREG_BAD_FORK);
    }
    last_launch = name_;
    return index_ < 0 ? static_cast<c10::DeviceIndex>(openreg_device_current()) : index_;
  }

  // Of all tensors on the device.
  int64_t elements() const { return elements_; }

  // Of which size the kernel's allocations stay on the host. A number that is an argument is
  // converted by CPU kernels in a tensor of its own, by kernels of a GPU in a register: it must not
  // count. It is told by its size from results, which have as many elements as the largest
  // argument, and from what the kernel writes to and may have to resize.
  uint8_t host_bytes(bool has_results) const {
    const auto fewest = has_results ? (has_number_ ? largest_ : 0) : smallest_written_;
    return fewest > kNumberBytes ? kNumberBytes : 0;
  }

private:
  void see_host_tensor(const at::Tensor &tensor);
  [[noreturn]] void refuse(c10::Device other, int position) const;

  // A position is an argument's in the schema, times this, plus a tensor's in that argument's list.
  static constexpr int kArgument = 1 << 16;
  static constexpr uint8_t kNumberBytes = 16; // of a complex128, the largest dtype

  const char *name_;
  const char *overload_;
  c10::DeviceIndex index_ = -1;
  int64_t elements_ = 0;
  int64_t largest_ = 0; // number of elements of one of them
  int64_t smallest_written_ = std::numeric_limits<int64_t>::max();
  bool has_number_ = false;
  int seen_ = 0;                        // the position of the next tensor
  int first_ = 0;                       // the position of the tensor that set the device
  std::optional<c10::Device> stranger_; // where the first tensor lies that may not be here
  int stranger_position_ = 0;
};

// What a kernel's result becomes when it does not own fresh device memory. `arguments` are the
// launch's device tensors.
at::Tensor return_shared(at::Tensor &&result, c10::ArrayRef<const at::Tensor *> arguments,
                         c10::DeviceIndex device);

inline bool is_fresh(const at::Tensor &result) {
  const auto *impl = result.unsafeGetTensorImpl();
  return impl->key_set().has_backend(c10::BackendComponent::CPUBit) && impl->has_storage() &&
         is_redirected(impl->unsafe_storage().unsafeGetStorageImpl()->data_ptr());
}

} // namespace openreg
