/* cublas.c: modes of a handle of cuBLAS, and reports of success on the host. */
#include "cudart/planner/answers.h"

ANSWER(cublasGetMathMode, 1, int, 0)
ANSWER(cublasGetPointerMode_v2, 1, int, 0)

#define FOR_TYPES(name, index)                                                                     \
  ANSWER(cublasS##name, index, int, 0)                                                             \
  ANSWER(cublasD##name, index, int, 0)                                                             \
  ANSWER(cublasC##name, index, int, 0)                                                             \
  ANSWER(cublasZ##name, index, int, 0)
FOR_TYPES(gelsBatched, 9)
FOR_TYPES(geqrfBatched, 6)
FOR_TYPES(getrsBatched, 9)
