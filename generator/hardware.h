/* hardware.h: float functions that a GPU approximates in hardware, as CUDA's __logf, __expf and
 * __tanf compose them.
 *
 * No table of the hardware's last bits exists. Each function here takes the same steps with an
 * accurate inner function, so results agree with the GPU within rounding, not bit for bit. GPUs
 * have no such hardware for doubles, so those use the C library's functions.
 */
#ifndef OPENREG_GENERATOR_HARDWARE_H
#define OPENREG_GENERATOR_HARDWARE_H

#include <math.h>

static inline float hardware_logf(float x) {
  return log2f(x) * 0.6931472f; /* ln 2 */
}

static inline float hardware_expf(float x) {
  return exp2f(x * 1.442695f); /* 1 / ln 2 */
}

static inline float hardware_tanf(float x) {
  return tanf(x);
}

#endif
