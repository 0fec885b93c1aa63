// PyTorch's build generates this header. Its CPU wheel has ATen/cuda/ without it.
#pragma once

#define AT_CUDNN_ENABLED()       0
#define AT_CUSPARSELT_ENABLED()  0
#define AT_HIPSPARSELT_ENABLED() 0
#define AT_ROCM_ENABLED()        0
#define AT_MAGMA_ENABLED()       0

#define NVCC_FLAGS_EXTRA ""
