/* cusolverDn.h: the type of cuSOLVER that PyTorch's headers name. */
#ifndef OPENREG_CUSOLVERDN_H
#define OPENREG_CUSOLVERDN_H

#include "cusolver_common.h"
#include "driver_types.h"

typedef struct cusolverDnContext *cusolverDnHandle_t;

#endif
