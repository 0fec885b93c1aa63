#pragma once

namespace openreg {

// Registers the autocast kernel for every operator in amp's policy table. Called once, at import.
void register_autocast_kernels();

} // namespace openreg
