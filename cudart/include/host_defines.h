/* host_defines.h: the words of CUDA's language that headers use outside of kernels. They mean
 * nothing to a compiler for the host. */
#ifndef OPENREG_HOST_DEFINES_H
#define OPENREG_HOST_DEFINES_H

#ifndef __CUDACC__
#define __host__
#define __device__
#define __global__
#define __forceinline__ __inline__ __attribute__((always_inline))
#endif

#endif
