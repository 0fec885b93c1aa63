/* lanes.h: the hot loops of this layer, compiled once for each instruction set.
 *
 * lanes.c is plain C that compilers vectorise, but for the rounds of Philox (rounds_wide.h). The
 * build compiles it for the plain processor, for AVX2 and for AVX-512, into one table each;
 * lanes_chosen gives the widest that the machine has, or the one that OPENREG_SIMD names (see
 * generator.h). All tables give the same bits: every operation is on integers, exact, or one IEEE
 * rounding.
 */
#ifndef OPENREG_GENERATOR_LANES_H
#define OPENREG_GENERATOR_LANES_H

#include "philox.h"

#pragma GCC visibility push(hidden)

/* A division by a number that is the same for all: T. Granlund, P. Montgomery, "Division by
 * invariant integers using multiplication", PLDI 1994, figure 4.1, for 32 bits. */
typedef struct divisor {
  uint32_t value, multiplier;
  int first_shift, second_shift;
} divisor;

divisor divisor_of(uint32_t value); /* > 0 */

typedef struct lanes {
  const char *name;
  /* As philox_fill. */
  void (*fill)(uint64_t seed, uint64_t first, uint64_t block, unsigned count, philox_words *words);
  /* fma(u, range, from) of uniforms u. */
  void (*scale)(const uint32_t *words, unsigned count, float range, float from, float *values);
  /* 1 where the uniform is less than p, else 0. */
  void (*below)(const uint32_t *words, unsigned count, float p, float *ones);
  /* words mod the divisor. */
  void (*remainders)(const uint32_t *words, unsigned count, divisor divisor, uint32_t *remainders);
} lanes;

/* The tables that the build makes; on a processor that is not x86-64, the first alone. */
extern const lanes lanes_c, lanes_avx2, lanes_avx512;

/* The same table on every call; safe from any thread. */
const lanes *lanes_chosen(void);

#pragma GCC visibility pop
#endif
