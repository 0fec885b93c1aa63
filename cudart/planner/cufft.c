/* cufft.c: plans of cuFFT. Their work area is a setting. */
#include "cudart/planner/answers.h"

int cufftCreate(int *plan);
int cufftCreate(int *plan) {
  static int plans;
  *plan = ++plans;
  return 0;
}

ANSWER(cufftXtMakePlanMany, 12, size_t, workspace_bytes("cufft"))
