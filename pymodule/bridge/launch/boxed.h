// Boxed launches: kernels for operators without a kernel of openreg's own.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace openreg {

// Registers a boxed launch for every operator that has a CPU kernel and no openreg kernel. Call it
// once, at import, after the bridge's other kernels are registered.
void register_boxed_kernels();

// Registers the fallbacks for the keys of composite tensors; later calls do nothing. Called when
// the devices are initialized, because such tensors cannot exist before: import stays fast.
// Thread-safe.
void register_composite_fallbacks();

// Runs the CPU kernel of an operator that another library registered, instead of the library's
// kernel for CUDA. `name`: such as torchvision::nms, with the overload behind a dot if there is
// one. Does nothing without a CPU kernel.
void replace_cuda_kernel(const std::string &name);

// Whether a boxed launch of the operator has a CPU kernel that it may run. A kernel that draws
// random numbers would use the host's generator.
bool can_be_boxed(const c10::OperatorHandle &op);

} // namespace openreg
