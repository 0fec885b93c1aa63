/* words.h: converts words of Philox to real numbers, as cuRAND's device functions do.
 *
 * All results lie in (0, 1]: 0 never occurs, 1 does. Every step below is exact or rounds once, so
 * the result is the same on every machine and in every vector width. This file must be compiled
 * without contraction (-ffp-contract=off), and uses fma explicitly.
 */
#ifndef OPENREG_GENERATOR_WORDS_H
#define OPENREG_GENERATOR_WORDS_H

#include <stdint.h>

/* The word, rounded to float, times 2^-32 (exact), plus 2^-33. The result is 1 for words from
 * 0xFFFFFF80. */
static inline float uniform_float(uint32_t word) {
  return (float)word * 0x1p-32f + 0x1p-33f;
}

/* 53 bits of two words, a XOR b * 2^21, which a double holds exactly, times 2^-53 (exact), plus
 * 2^-54. The bits are converted in two halves, because few machines convert vectors of 64-bit
 * integers. */
static inline double uniform_double(uint32_t a, uint32_t b) {
  const double bits = (double)(b >> 11) * 0x1p32 + (double)(a ^ b << 21);
  return bits * 0x1p-53 + 0x1p-54;
}

/* A 64-bit word from two words: the first one is the upper half. */
static inline uint64_t word_64(uint32_t a, uint32_t b) {
  return (uint64_t)a << 32 | b;
}

#endif
