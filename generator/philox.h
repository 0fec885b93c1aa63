/* philox.h: Philox4x32-10 for many subsequences at once.
 *
 * Every kernel of this layer needs one block of words of each of some consecutive subsequences.
 * openreg_philox_fill returns them as four arrays (structure of arrays), so that the next step is a
 * plain loop over an array. It runs in the instruction set of lanes.h.
 */
#ifndef OPENREG_GENERATOR_PHILOX_H
#define OPENREG_GENERATOR_PHILOX_H

#include "generator/generator.h"

/* Subsequences per batch. The 4 KiB of words and their results stay in the first-level cache. It
 * divides the 256 threads of a CUDA block. */
enum { PHILOX_BATCH = 256 };

typedef struct philox_words {
  _Alignas(64) uint32_t lane[4][PHILOX_BATCH];
} philox_words;

/* Computes lane[l][j] = word l of subsequence first + j, block `block`, for j < count <=
 * PHILOX_BATCH. */
__attribute__((visibility("hidden"))) void openreg_philox_fill(uint64_t seed, uint64_t first,
                                                               uint64_t block, unsigned count,
                                                               philox_words *words);

#endif
