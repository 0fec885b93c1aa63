/* nccl.c: NCCL's version. The planner has no communicators. */
#include "cudart/planner/answers.h"

enum { VERSION = 22907 };

RETURN(ncclGetErrorString, const char *, "openreg: no NCCL")
RETURN(ncclGetLastError, const char *, "openreg: no NCCL")

int ncclGetVersion(int *version);
int ncclGetVersion(int *version) {
  *version = VERSION;
  return 0;
}
