/* cusparse.h: the types of cuSPARSE that PyTorch's headers name. openreg has no cuSPARSE, so there
 * are no functions. */
#ifndef OPENREG_CUSPARSE_H
#define OPENREG_CUSPARSE_H

#include "driver_types.h"
#include "library_types.h"

typedef struct cusparseContext *cusparseHandle_t;

typedef enum {
  CUSPARSE_STATUS_SUCCESS = 0,
  CUSPARSE_STATUS_NOT_INITIALIZED = 1,
  CUSPARSE_STATUS_ALLOC_FAILED = 2,
  CUSPARSE_STATUS_INVALID_VALUE = 3,
  CUSPARSE_STATUS_EXECUTION_FAILED = 6,
  CUSPARSE_STATUS_INTERNAL_ERROR = 7,
  CUSPARSE_STATUS_NOT_SUPPORTED = 10,
} cusparseStatus_t;

#endif
