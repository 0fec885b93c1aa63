// Two accounts: which memory of a CPU kernel counts as the device's memory, and which does not.
//
// A device holds what a CUDA kernel would hold: the results of an operator. What PyTorch's CPU
// kernel allocates for itself, such as copies in another dtype or layout, is host memory. It must
// not change a device's statistics or segments. But both come from the same allocator, and a kernel
// does not say which of its allocations it will return. So a launch knows it beforehand, in one of
// these ways:
//
//   - The operator's kernels allocate their results before anything else: kResultsFirst. This holds
//     for PyTorch's "structured" operators.
//   - The CPU and CUDA share the code, or a program brought the kernel: kAsOnCuda. All that it
//     allocates is device memory.
//   - An earlier launch of the same signature showed it (OutputPlan::results).
//   - Otherwise all of it is host memory, and the results are moved to the device afterwards. That
//     is the case for small launches, because a move costs less than the search for a plan, and for
//     the first launch of a signature.
//
// A wrong guess changes no result. It changes the statistics: memory that was placed on the device
// and is not returned has been counted (misplaced_allocations()).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string_view>

#include "memory/allocation/memory.h"

namespace openreg {

enum class KernelMemory : uint8_t {
  kUnknown,
  kResultsFirst,
  kAsOnCuda,
};

// What is known about the memory of an operator's kernel.
struct KernelTraits {
  KernelMemory memory;
  // A CPU kernel converts arguments to the dtype in which it computes, before it allocates its
  // results. A CUDA kernel does so in registers.
  bool converts_arguments;
  // It makes tensors of its arguments that are numbers.
  bool converts_numbers;
};

// Whether a program or another library brought the kernel. PyTorch's own operators are aten::*, and
// those of launch/host_operator.h are openreg_host::*.
bool is_foreign(std::string_view name);

KernelTraits kernel_traits(const c10::OperatorHandle &op);

// With at most so many elements among a launch's arguments, its results are moved to the device.
inline constexpr int64_t kMovedElements = 1024;

} // namespace openreg
