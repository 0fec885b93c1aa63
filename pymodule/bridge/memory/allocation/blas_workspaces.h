// The workspaces of cuBLAS, as PyTorch gives them to it on CUDA: memory of the caching allocator,
// one workspace for each handle and stream, had at the first call and kept. A handle belongs to one
// thread and one device; that of a thread that has ended goes to the next that needs one.
//
// Nothing is ever in them. They are there for the bytes that they take, with
// OPENREG_GPU_OVERHEAD=1.
#pragma once

#include <c10/core/Device.h>

#include "compat/blas_operators.h"

namespace openreg {

// For a call of this thread, on the device's current stream. How many bytes they are follows from
// CUBLAS_WORKSPACE_CONFIG, CUBLASLT_WORKSPACE_SIZE, TORCH_CUBLASLT_UNIFIED_WORKSPACE and the
// device's compute capability, which are looked at once. Raises torch.OutOfMemoryError.
void ensure_blas_workspace(c10::DeviceIndex device, BlasLibrary library);

// How many bytes a workspace is, by the environment or by what the program asked for, which counts
// for every workspace that is needed from then on: one that is too small is replaced then.
size_t blas_workspace_bytes(c10::DeviceIndex device, BlasLibrary library);
void set_blas_workspace_bytes(BlasLibrary library, size_t bytes);
void reset_blas_workspace_bytes(BlasLibrary library);

// Gives all of them back to the allocator; each is had again when it is next needed.
void clear_blas_workspaces();

} // namespace openreg
