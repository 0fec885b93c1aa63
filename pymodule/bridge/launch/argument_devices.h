// Finds the device of a launch from its arguments, and checks that they belong together.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKeySet.h>

#include <algorithm>
#include <optional>

#include "launch/kernel_memory.h"
#include "tensor/device_tensor.h"

namespace openreg {

constexpr c10::DispatchKeySet kCpuKernel(c10::DispatchKey::CPU);

// The operator that this thread launched last, for messages and graph nodes. The name lives as long
// as the operator is registered.
extern constinit thread_local const char *last_launch __attribute__((tls_model("initial-exec")));

// Give it all arguments in the schema's order, each by one call: check(), check_scalar(), skip() or
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
      has_several_dtypes_ |= dtype_ != impl->dtype() && index_ >= 0;
      dtype_ = impl->dtype();
      if (index_ < 0) {
        index_ = index;
        first_ = position_;
      } else if (index_ != index) {
        refuse(impl->device(), position_);
      }
    } else if (tensor.defined()) {
      has_number_ = true;
      has_complex_number_ |= tensor.is_complex();
      if (!impl->is_wrapped_number()) {
        check_host_tensor(tensor);
      }
    }
    position_ += kArgument;
  }

  // An argument that holds no tensor.
  void skip() { position_ += kArgument; }
  // An at::Scalar.
  void check_scalar(bool is_complex) {
    has_scalar_ = true;
    has_complex_number_ |= is_complex;
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

  // Which allocations of a CPU kernel are the device's, if the operator has `results` fresh
  // results. Nothing means that only a plan can tell.
  std::optional<Placement> placement(const KernelTraits &kernel, size_t results) const {
    if (results == 0 && (kernel.converts_arguments || kernel.memory != KernelMemory::kAsOnCuda)) {
      return Placement();
    }
    const bool has_number = has_number_ || (has_scalar_ && kernel.converts_numbers);
    if (kernel.memory != KernelMemory::kUnknown && elements_ > 0 &&
        (!kernel.converts_arguments || converts_nothing(has_number))) [[likely]] {
      auto known = kernel.memory == KernelMemory::kResultsFirst ? Placement::first(results)
                                                                : Placement::all();
      known.host_bytes = has_number && largest_ > kNumberBytes ? kNumberBytes : uint8_t{0};
      return known;
    }
    return elements_ <= kMovedElements && index_ >= 0 ? std::optional(Placement()) : std::nullopt;
  }

private:
  // Whether the kernel computes in the dtype of its arguments. It converts a number in a tensor
  // with one element, which is recognized by its size if the results, with as many elements as the
  // largest argument, are larger.
  bool converts_nothing(bool has_number) const {
    const auto dtype = dtype_.toScalarType();
    return !has_several_dtypes_ && !at::isIntegralType(dtype, /*includeBool=*/true) &&
           (!has_complex_number_ || at::isComplexType(dtype)) &&
           (!has_number || largest_ > kNumberBytes);
  }

  void check_host_tensor(const at::Tensor &tensor);
  [[noreturn]] void refuse(c10::Device other, int position) const;

  // A position is the argument's index in the schema times this, plus the index within its list.
  static constexpr int kArgument = 1 << 16;
  static constexpr uint8_t kNumberBytes = 16; // one complex128, the largest dtype

  const char *name_;
  const char *overload_;
  c10::DeviceIndex index_ = -1;
  int64_t elements_ = 0;
  int64_t largest_ = 0;     // elements of the largest tensor
  bool has_number_ = false; // a tensor on the host
  bool has_scalar_ = false;
  bool has_complex_number_ = false; // of either kind
  bool has_several_dtypes_ = false;
  caffe2::TypeMeta dtype_;               // of the last tensor
  int position_ = 0;                     // of the next tensor
  int first_ = 0;                        // the position of the tensor that set index_
  std::optional<c10::Device> misplaced_; // the device of the first tensor that must not be there
  int misplaced_position_ = 0;
};

} // namespace openreg
