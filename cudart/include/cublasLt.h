/* cublasLt.h: the type of cuBLASLt that PyTorch's headers name. */
#ifndef OPENREG_CUBLASLT_H
#define OPENREG_CUBLASLT_H

#include "cublas_v2.h"

typedef struct cublasLtContext *cublasLtHandle_t;

#endif
