// PyTorch's build generates this header. Its CPU wheel has c10/cuda/ without it.
#pragma once

#define C10_CUDA_BUILD_SHARED_LIBS
