// Launches of operators for which CUDA's kernels call cuBLAS, with OPENREG_GPU_OVERHEAD=1.
#pragma once

namespace openreg {

// Puts kernels in the place of these operators' that launch as before and then see to the workspace
// that the call would have on CUDA, where results are allocated before it as well. Does nothing
// without OPENREG_GPU_OVERHEAD=1, and nothing when called again.
void register_blas_launches();

} // namespace openreg
