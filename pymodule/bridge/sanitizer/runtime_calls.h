// Reports the program's calls of the CUDA runtime.
//
// A C++ extension calls cudaEventRecord or cudaMemcpyAsync itself, or c10::cuda::CUDAEvent does.
// The runtime is a C library that knows nothing of this one, so its calls come through the device
// layer (device/operations.h). PyTorch's trace hooks do not get them: on CUDA they see only what
// PyTorch calls.
#pragma once

namespace openreg {

// Observes the runtime from now on, and reports to the session that is active.
void observe_runtime();

} // namespace openreg
