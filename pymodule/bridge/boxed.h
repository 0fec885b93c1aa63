#pragma once

namespace openreg {

// Registers the boxed launch for every operator that has a CPU kernel and no openreg kernel. Called
// once, at import, after all other kernels of the bridge are registered.
void register_boxed_kernels();

} // namespace openreg
