// Launches of operators whose CUDA kernels call cuBLAS. With OPENREG_GPU_OVERHEAD=1 they allocate
// the workspace that cuBLAS would.
#pragma once

namespace openreg {

// Replaces these operators' kernels by ones that launch as before and then allocate the workspace.
// The order is CUDA's: results first. Does nothing without OPENREG_GPU_OVERHEAD=1, or when called
// again.
void register_blas_launches();

} // namespace openreg
