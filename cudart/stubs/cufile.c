/* cufile.c: libcufile.so.0. There is no GPUDirect Storage: each call fails. */
#include <errno.h>
#include <sys/types.h>

enum { CU_FILE_DRIVER_NOT_INITIALIZED = 5001 };

typedef struct CUfileError {
  int err;    /* of cuFile */
  int cu_err; /* of the CUDA driver, if `err` says so */
} CUfileError_t;

#define X(name)                                                                                    \
  CUfileError_t name(void);                                                                        \
  CUfileError_t name(void) {                                                                       \
    return (CUfileError_t){CU_FILE_DRIVER_NOT_INITIALIZED, 0};                                     \
  }
X(cuFileBufDeregister)
X(cuFileBufRegister)
X(cuFileHandleRegister)
#undef X

#define X(name)                                                                                    \
  ssize_t name(void);                                                                              \
  ssize_t name(void) {                                                                             \
    errno = ENOTSUP;                                                                               \
    return -1;                                                                                     \
  }
X(cuFileRead)
X(cuFileWrite)
#undef X

void cuFileHandleDeregister(void *handle);
void cuFileHandleDeregister(void *handle) {
  (void)handle;
}
