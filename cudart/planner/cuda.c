/* cuda.c: the driver, for kernels that NVRTC compiles. */
#include "cudart/planner/answers.h"

enum { BLOCKS = 2, THREADS_PER_BLOCK = 1024 };

static char object; /* a context, a module, a function */

static int store_object(void **stored) {
  *stored = &object;
  return 0;
}

#define CREATES(name)                                                                              \
  int name(void **created);                                                                        \
  int name(void **created) {                                                                       \
    return store_object(created);                                                                  \
  }
CREATES(cuCtxGetCurrent)
CREATES(cuDevicePrimaryCtxRetain)
CREATES(cuModuleGetFunction)
CREATES(cuModuleLoad)
CREATES(cuModuleLoadData)
CREATES(cuModuleLoadDataEx)
ANSWER(cuGetErrorString, 1, const char *, "openreg: no CUDA driver")

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active);
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active) {
  (void)device;
  *flags = 0;
  *is_active = 1;
  return 0;
}

int cuDeviceGet(int *device, int ordinal);
int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)attribute, (void)device;
  *value = THREADS_PER_BLOCK;
  return 0;
}

int cuFuncGetAttribute(int *value, int attribute, void *function);
int cuFuncGetAttribute(int *value, int attribute, void *function) {
  (void)function;
  *value = attribute == 0 ? THREADS_PER_BLOCK : 0; /* 0: the largest block */
  return 0;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads,
                                                size_t shared_bytes);
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads,
                                                size_t shared_bytes) {
  (void)function, (void)threads, (void)shared_bytes;
  *blocks = BLOCKS;
  return 0;
}

/* For cuLinkComplete(state, code, bytes). */
int cuLinkComplete(void *state, void **code, size_t *bytes);
int cuLinkComplete(void *state, void **code, size_t *bytes) {
  (void)state;
  *bytes = 1;
  return store_object(code);
}
