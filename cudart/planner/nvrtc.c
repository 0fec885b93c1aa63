/* nvrtc.c: the compiler of kernels at run time. The code is a byte long. */
#include "cudart/planner/answers.h"

RETURN(nvrtcGetErrorString, const char *, "openreg: no NVRTC")

int nvrtcVersion(int *major, int *minor);
int nvrtcVersion(int *major, int *minor) {
  *major = 13;
  *minor = 0;
  return 0;
}

int nvrtcCreateProgram(void **program);
int nvrtcCreateProgram(void **program) {
  static char only_program;
  *program = &only_program;
  return 0;
}

ANSWER(nvrtcGetCUBINSize, 1, size_t, 1)
ANSWER(nvrtcGetPTXSize, 1, size_t, 1)
ANSWER(nvrtcGetProgramLogSize, 1, size_t, 1)
ANSWER(nvrtcGetCUBIN, 1, char, 0)
ANSWER(nvrtcGetPTX, 1, char, 0)
ANSWER(nvrtcGetProgramLog, 1, char, 0)
ANSWER(nvrtcGetLoweredName, 2, const char *, "kernel")
