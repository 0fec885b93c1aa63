/* cufft.c: plans of cuFFT, which need no work area. */
#include "cudart/planner/answers.h"

int cufftCreate(int *plan);
int cufftCreate(int *plan) {
  static int plans;
  *plan = ++plans;
  return 0;
}

ANSWER(cufftXtMakePlanMany, 12, size_t, 0)
