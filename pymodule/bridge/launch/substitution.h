// What happens to tensors in a launch: device tensors become CPU twins before the kernel runs, and
// its results become device tensors afterwards.
//
// Every operator on device tensors goes through a launch. A launch
//   1. checks what CUDA checks: all tensors are on one device (argument_devices.h);
//   2. replaces each tensor argument by its CPU twin (tensor/device_tensor.h);
//   3. calls PyTorch's CPU kernel below autograd, with CPU allocations overridden to come from the
//      device (memory/allocation/memory.h);
//   4. returns the results as device tensors:
//        - a result in memory that the kernel allocated is adopted, without a copy;
//        - a result that is an argument's twin, or a view of one, becomes the argument, or a view;
//        - a result in host memory is moved to the device (kernel_memory.h).
// Typed launches (typed.h) do this for operators that are known at compile time. Boxed launches
// (boxed_operator.h) do it for every other operator that has a CPU kernel.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

#include "tensor/device_tensor.h"

namespace openreg {

// A device tensor of a launch, and the twin that stands in for it.
struct Substituted {
  at::Tensor tensor;
  at::Tensor twin;
  bool written; // the kernel writes to it
};
using SubstitutedList = c10::SmallVector<Substituted, 4>;

// Whether a result owns memory that the kernel allocated on the device.
inline bool is_fresh(const at::Tensor &result) {
  const auto *impl = result.unsafeGetTensorImpl();
  return impl->key_set().has_backend(c10::BackendComponent::CPUBit) && impl->has_storage() &&
         is_from_override(impl->unsafe_storage().unsafeGetStorageImpl()->data_ptr());
}

// Returns the device tensor for a kernel's result that does not own fresh device memory: an
// argument, a view of one, or a tensor in new memory. `arguments` are the launch's device tensors.
at::Tensor return_alias(at::Tensor &&result, c10::ArrayRef<const at::Tensor *> arguments,
                        c10::DeviceIndex device);

// Appends the tensor with its twin to `substituted` and returns the twin. Returns the tensor itself
// if it is not on a device. The components of a composite tensor are appended before it.
at::Tensor substitute(const at::Tensor &tensor, bool written, SubstitutedList &substituted);

// Brings the written tensors up to date with their twins: memory, sizes and strides.
void write_back_all(c10::ArrayRef<Substituted> substituted, c10::DeviceIndex device);

// Turns the kernel's `count` results on top of the stack into device tensors. `host_result` is the
// index of a result that stays on the host, or -1.
void return_results(torch::jit::Stack *stack, size_t count, int host_result,
                    c10::ArrayRef<Substituted> substituted, c10::DeviceIndex device);

// Resizes the written tensors whose twins a kernel has resized. Here twins may also be placeholders
// (placeholder_inputs.h) or meta tensors.
void resize_written(c10::ArrayRef<Substituted> substituted);

int64_t count_elements(c10::ArrayRef<Substituted> substituted);

} // namespace openreg
