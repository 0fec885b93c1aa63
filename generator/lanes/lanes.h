/* lanes.h: the hot loops of this layer, compiled once for each instruction set.
 *
 * lanes.c is plain C that compilers vectorize, except the rounds of Philox (rounds_wide.h). The
 * build compiles it for the baseline processor, for AVX2 and for AVX-512, into one table each.
 * openreg_lanes_chosen returns the table that matches openreg_simd_chosen of the device layer. All
 * tables give the same bits: every operation is on integers, exact, or one IEEE rounding.
 *
 * A kernel generates a batch of words and passes it through two or three of these loops.
 * Intermediate values stay in the first-level cache. Counts of words are at most PHILOX_BATCH.
 */
#ifndef OPENREG_GENERATOR_LANES_H
#define OPENREG_GENERATOR_LANES_H

#include "generator/philox.h"

#pragma GCC visibility push(hidden)

/* Division by an invariant number: T. Granlund, P. Montgomery, "Division by invariant integers
 * using multiplication", PLDI 1994, figure 4.1, for 32 and for 64 bits. */
typedef struct divisor {
  uint32_t value, multiplier;
  int first_shift, second_shift;
} divisor;

typedef struct divisor_64 {
  uint64_t value, multiplier;
  int first_shift, second_shift;
} divisor_64;

divisor openreg_divisor_of(uint32_t value);       /* value > 0 */
divisor_64 openreg_divisor_64_of(uint64_t value); /* value > 0 */

typedef struct lanes {
  /* As openreg_philox_fill. */
  void (*fill)(uint64_t seed, uint64_t first, uint64_t block, unsigned count, philox_words *words);

  /* ---- words to numbers; u is the uniform of a word ------------------------------------------ */

  /* fma(u, range, from). */
  void (*scale)(const uint32_t *words, unsigned count, float range, float from, float *values);
  /* 1 where u is less than p, else 0. */
  void (*below)(const uint32_t *words, unsigned count, float p, float *ones);
  /* ln u. */
  void (*logarithms)(const uint32_t *words, unsigned count, float *values);
  /* fma(z, deviation, mean) of normal numbers z: see box_muller.h. */
  void (*normals)(const uint32_t *first, const uint32_t *second, unsigned sine_count,
                  unsigned cosine_count, float deviation, float mean, float *sines, float *cosines);
  /* words mod the divisor, plus base, mod 2^32. */
  void (*remainders)(const uint32_t *words, unsigned count, divisor divisor, uint32_t base,
                     uint32_t *values);

  /* ---- pairs of words to numbers; u is the uniform double of a pair -------------------------- */

  /* fma(u, range, from). */
  void (*scale_doubles)(const uint32_t *a, const uint32_t *b, unsigned count, double range,
                        double from, double *values);
  /* 1 where u is less than p, else 0. */
  void (*below_doubles)(const uint32_t *a, const uint32_t *b, unsigned count, double p,
                        double *ones);
  /* 64-bit words plus base. */
  void (*words_64)(const uint32_t *a, const uint32_t *b, unsigned count, uint64_t base,
                   int64_t *values);
  /* 64-bit words mod the divisor, plus base. */
  void (*remainders_64)(const uint32_t *a, const uint32_t *b, unsigned count, divisor_64 divisor,
                        uint64_t base, int64_t *values);

  /* ---- numbers to numbers -------------------------------------------------------------------- */

  /* Replaces each `value` by `replacement`. */
  void (*replace)(float *values, unsigned count, float value, float replacement);
  void (*replace_doubles)(double *values, unsigned count, double value, double replacement);
  /* The smaller of value and limit, times factor. */
  void (*limit_and_multiply)(float *values, unsigned count, float limit, float factor);

  /* ---- dropout ------------------------------------------------------------------------------- */

  /* The uniforms of vectors of `width` elements (1, 2, 4 or 8), one vector after the other: element
   * e of vector j comes from word e mod 4 of words[e / 4], subsequence j. */
  void (*interleave)(const philox_words words[2], unsigned count, unsigned width, float *uniforms);
  /* mask = u < keep, values = values * mask * scale, left to right; any count. */
  void (*drop)(const float *uniforms, unsigned count, float keep, float scale, bool *mask,
               float *values);

  /* ---- numbers to elements and back: see types.h --------------------------------------------- */

  void (*store_floats)(openreg_type type, const float *values, size_t count, void *elements);
  void (*load_floats)(openreg_type type, const void *elements, size_t count, float *values);
  void (*round_floats)(openreg_type type, float *values, size_t count);
  void (*store_int32s)(openreg_type type, const int32_t *values, size_t count, void *elements);
  void (*store_int64s)(openreg_type type, const int64_t *values, size_t count, void *elements);
} lanes;

/* The tables that the build makes. On a processor that is not x86-64 only the first exists. */
extern const lanes openreg_lanes_c, openreg_lanes_avx2, openreg_lanes_avx512;

/* Returns the same table on every call. Thread-safe. */
const lanes *openreg_lanes_chosen(void);

#pragma GCC visibility pop
#endif
