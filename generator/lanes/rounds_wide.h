/* rounds_wide.h: the ten rounds of Philox4x32 for a vector of counters, with AVX2 or AVX-512.
 *
 * Compilers do not find this by themselves. The vector multiplication takes the lower halves of
 * 64-bit numbers. So counters lie in 64-bit numbers: one vector for those at even positions and one
 * for those at odd positions. The contents of the upper halves never matter, so no instruction
 * clears them, and the two result vectors combine without a permutation.
 */
#ifndef OPENREG_GENERATOR_ROUNDS_WIDE_H
#define OPENREG_GENERATOR_ROUNDS_WIDE_H

#if defined(__AVX2__)

#include "generator/lanes/rounds.h"

#include <immintrin.h>
#include <string.h>

#if defined(__AVX512F__)
enum { WIDE_BYTES = 64 };
#else
enum { WIDE_BYTES = 32 };
#endif
enum { WIDE_COUNTERS = WIDE_BYTES / sizeof(uint32_t) };

typedef uint64_t wide __attribute__((vector_size(WIDE_BYTES)));

static inline wide wide_of(uint32_t value) {
  return value - (wide){0};
}

static inline wide product_of_lower_halves(wide a, wide b) {
#if defined(__AVX512F__)
  return (wide)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#else
  return (wide)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#endif
}

typedef struct wide_quadruple {
  wide x, y, z, w;
} wide_quadruple;

static inline __attribute__((always_inline)) wide_quadruple wide_round(wide_quadruple c, wide k0,
                                                                       wide k1) {
  const wide a = product_of_lower_halves(c.x, wide_of(MULTIPLIER_0));
  const wide b = product_of_lower_halves(c.z, wide_of(MULTIPLIER_1));
  return (wide_quadruple){b >> 32 ^ c.y ^ k0, b, a >> 32 ^ c.w ^ k1, a};
}

static inline void wide_store(uint32_t *words, wide even, wide odd) {
  const wide both = (even & UINT32_MAX) | odd << 32;
  memcpy(words, &both, sizeof both);
}

/* Computes words of subsequences c2, c2 + 1, ... (the lower halves, which must not wrap). The rest
 * of the counter is the same for all. Lane l goes to words[l * stride]. */
static inline __attribute__((always_inline)) void wide_rounds(uint32_t c0, uint32_t c1, uint32_t c2,
                                                              uint32_t c3, uint32_t k0, uint32_t k1,
                                                              uint32_t *words, unsigned stride) {
  static const uint32_t steps[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  wide c2s;
  memcpy(&c2s, steps, sizeof c2s);
  c2s += wide_of(c2) | wide_of(c2) << 32; /* two sums in one, because neither wraps */
  wide_quadruple even = {wide_of(c0), wide_of(c1), c2s, wide_of(c3)}, odd = even;
  odd.z = c2s >> 32;
#pragma GCC unroll 10
  for (int round = 0; round < ROUNDS; round++) {
    even = wide_round(even, wide_of(k0), wide_of(k1));
    odd = wide_round(odd, wide_of(k0), wide_of(k1));
    k0 += INCREMENT_0;
    k1 += INCREMENT_1;
  }
  wide_store(words, even.x, odd.x);
  wide_store(words + stride, even.y, odd.y);
  wide_store(words + 2 * stride, even.z, odd.z);
  wide_store(words + 3 * stride, even.w, odd.w);
}

#endif
#endif
