// The workspaces of cuBLAS, as PyTorch provides them on CUDA. There is one workspace for each
// handle and stream. It is allocated from the caching allocator at the first call, and kept. A
// handle belongs to one thread and one device. The handle of a thread that has ended goes to the
// next thread that needs one.
//
// Workspaces are never used. With OPENREG_GPU_OVERHEAD=1 they exist for the bytes that they take.
#pragma once

#include <c10/core/Device.h>

#include "compat/blas_operators.h"

namespace openreg {

// Allocates the workspace for a call of this thread on the device's current stream. Its size
// depends on CUBLAS_WORKSPACE_CONFIG, CUBLASLT_WORKSPACE_SIZE, TORCH_CUBLASLT_UNIFIED_WORKSPACE and
// the device's compute capability, which are read once. Raises torch.OutOfMemoryError.
void ensure_blas_workspace(c10::DeviceIndex device, BlasLibrary library);

// Get, set and reset the size of a workspace: the program's value, or else that of the environment.
// A new size applies to every workspace that is needed from then on. A workspace that is too small
// is replaced.
size_t blas_workspace_bytes(c10::DeviceIndex device, BlasLibrary library);
void set_blas_workspace_bytes(BlasLibrary library, size_t bytes);
void reset_blas_workspace_bytes(BlasLibrary library);

// Frees all workspaces. Each is allocated again when it is needed.
void clear_blas_workspaces();

} // namespace openreg
