#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace openreg {

// Registers the boxed launch for every operator that has a CPU kernel and no openreg kernel. Called
// once, at import, after all other kernels of the bridge are registered.
void register_boxed_kernels();

// Registers the fallbacks of the keys of tensors that are made of others; does nothing when that
// has been done. Not at import, which most programs that import PyTorch need nothing of: there are
// no such tensors before the devices are initialized. Any thread.
void register_composite_fallbacks();

// Whether a launch of the operator by its schema finds a CPU kernel that it may run: one that draws
// random numbers would draw the host's.
bool can_be_boxed(const c10::OperatorHandle &op);

} // namespace openreg
