/* unscale_loops.h: the loops of the unscale kernels, compiled once for each instruction set.
 *
 * unscale_loops.c is plain C that compilers vectorize, except the conversion of binary16, which has
 * its own instructions. The build compiles it for the baseline processor, for AVX2 with F16C and
 * for AVX-512, into one table each. unscale.c uses the widest one that the machine has. All tables
 * give the same bits.
 */
#ifndef OPENREG_AMP_UNSCALE_LOOPS_H
#define OPENREG_AMP_UNSCALE_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Each multiplies `count` gradients by `factor` and returns whether any was not finite before. */
typedef struct unscale_loops {
  bool (*f16)(uint16_t *gradients, size_t count, float factor);
  bool (*bf16)(uint16_t *gradients, size_t count, float factor);
  bool (*f32)(float *gradients, size_t count, float factor);
  bool (*f64)(double *gradients, size_t count, float factor);
} unscale_loops;

/* The tables that the build makes. On a processor that is not x86-64 only the first exists. */
extern const unscale_loops openreg_unscale_loops_c, openreg_unscale_loops_avx2,
    openreg_unscale_loops_avx512;

#pragma GCC visibility pop
#endif
