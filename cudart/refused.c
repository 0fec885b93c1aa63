/* refused.c: the functions of the CUDA runtime that openreg does not implement.
 *
 * Libraries that use them still load, and each call fails with cudaErrorNotSupported and a sentence
 * that names the function. The arguments are not looked at, so one definition serves every
 * signature: on the machines that openreg supports, a function may ignore arguments in registers.
 * refused.h has the names.
 */
#include "cudart/internal.h"
#include "cudart/refused.h"

#undef cudaGetDeviceProperties /* in CUDA 12 the name of an older function, refused below */

#define X(name)                                                                                    \
  cudaError_t name(void);                                                                          \
  cudaError_t name(void) {                                                                         \
    return cudart_refuse(#name, "");                                                               \
  }
REFUSED_LIST(X)
#if CUDART_VERSION >= 13000
REFUSED_LIST_13(X)
#else
REFUSED_LIST_12(X)
#endif
#undef X

#define X(name)                                                                                    \
  cudaError_t name(void);                                                                          \
  cudaError_t name(void) {                                                                         \
    return cudart_refuse(#name, "the program was compiled with --default-stream per-thread");      \
  }
REFUSED_PER_THREAD_LIST(X)
#if CUDART_VERSION >= 13000
REFUSED_PER_THREAD_LIST_13(X)
#else
REFUSED_PER_THREAD_LIST_12(X)
#endif
#undef X

/* Describes a texel; a plain function without a device. It returns a struct, so it cannot be one of
 * the functions above. */
struct cudaChannelFormatDesc {
  int x, y, z, w;
  int kind;
};
struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, int kind);
struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, int kind) {
  return (struct cudaChannelFormatDesc){x, y, z, w, kind};
}
