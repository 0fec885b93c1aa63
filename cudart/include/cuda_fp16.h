/* cuda_fp16.h: 16-bit floats as CUDA's libraries name them in their declarations. Without a
 * compiler for CUDA there is no arithmetic. */
#ifndef OPENREG_CUDA_FP16_H
#define OPENREG_CUDA_FP16_H

typedef struct {
  unsigned short x;
} __half_raw;

#endif
