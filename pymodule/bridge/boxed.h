#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace openreg {

// Registers the boxed launch for every operator that has a CPU kernel and no openreg kernel. Called
// once, at import, after all other kernels of the bridge are registered.
void register_boxed_kernels();

// Whether a launch of the operator by its schema finds a CPU kernel that it may run: one that draws
// random numbers would draw the host's.
bool can_be_boxed(const c10::OperatorHandle &op);

} // namespace openreg
