/* cuda_profiler_api.h: NVIDIA's header of this name declares what cuda_runtime_api.h has here. */
#ifndef OPENREG_CUDA_PROFILER_API_H
#define OPENREG_CUDA_PROFILER_API_H

#include "cuda_runtime_api.h"

#endif
