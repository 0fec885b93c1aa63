/* cusparse.c: sizes of cuSPARSE's work areas: a setting. Sparse results have no elements. */
#include "cudart/planner/answers.h"

#define BYTES(type) (type) workspace_bytes("cusparse")
#define FOR_TYPES(name, index, type)                                                               \
  ANSWER(cusparseS##name, index, type, BYTES(type))                                                \
  ANSWER(cusparseD##name, index, type, BYTES(type))                                                \
  ANSWER(cusparseC##name, index, type, BYTES(type))                                                \
  ANSWER(cusparseZ##name, index, type, BYTES(type))

FOR_TYPES(bsrsm2_bufferSize, 13, int)
FOR_TYPES(bsrsv2_bufferSize, 11, int)
FOR_TYPES(csrgeam2_bufferSizeExt, 19, size_t)
ANSWER(cusparseSDDMM_bufferSize, 10, size_t, BYTES(size_t))
ANSWER(cusparseSpMM_bufferSize, 10, size_t, BYTES(size_t))
ANSWER(cusparseSpMV_bufferSize, 9, size_t, BYTES(size_t))
ANSWER(cusparseSpSM_bufferSize, 10, size_t, BYTES(size_t))
ANSWER(cusparseSpSV_bufferSize, 9, size_t, BYTES(size_t))
ANSWER(cusparseSpGEMM_workEstimation, 11, size_t, BYTES(size_t))
ANSWER(cusparseSpGEMM_compute, 11, size_t, BYTES(size_t))
ANSWER(cusparseXcoosort_bufferSizeExt, 6, size_t, BYTES(size_t))
ANSWER(cusparseXcsrsort_bufferSizeExt, 6, size_t, BYTES(size_t))
ANSWER(cusparseXcsrgeam2Nnz, 13, int, 0)
RETURN(cusparseGetErrorString, const char *, "openreg: no cuSPARSE")

int cusparseSpMatGetSize(void *matrix, int64_t *rows, int64_t *columns, int64_t *elements);
int cusparseSpMatGetSize(void *matrix, int64_t *rows, int64_t *columns, int64_t *elements) {
  (void)matrix;
  *rows = *columns = *elements = 0;
  return 0;
}
