/* philox.c: the function Philox4x32-10, once and for a batch.
 *
 * J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2,
 * 3", SC11. The function has no state: nothing to initialise, nothing to fail, any order of
 * evaluation. The rounds are written once, as an inline function of scalars, so that the loop over
 * a batch has no branch and no dependence between iterations: compilers turn it into vector
 * instructions.
 */
#include "philox.h"

#include <assert.h>

/* Multipliers and key increments: table 2 and section 4.3 of the paper. The increments are the
 * golden ratio and sqrt(3) - 1. */
#define MULTIPLIER_0 UINT32_C(0xD2511F53)
#define MULTIPLIER_1 UINT32_C(0xCD9E8D57)
#define INCREMENT_0  UINT32_C(0x9E3779B9)
#define INCREMENT_1  UINT32_C(0xBB67AE85)

enum { ROUNDS = 10 };

typedef struct quadruple {
  uint32_t x, y, z, w;
} quadruple;

static inline __attribute__((always_inline)) quadruple rounds(quadruple c, uint32_t k0,
                                                              uint32_t k1) {
#pragma GCC unroll 10
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t a = (uint64_t)MULTIPLIER_0 * c.x;
    uint64_t b = (uint64_t)MULTIPLIER_1 * c.z;
    c = (quadruple){(uint32_t)(b >> 32) ^ c.y ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ c.w ^ k1,
                    (uint32_t)a};
    k0 += INCREMENT_0;
    k1 += INCREMENT_1;
  }
  return c;
}

void openreg_philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t words[4]) {
  quadruple c = {counter[0], counter[1], counter[2], counter[3]};
  c = rounds(c, key[0], key[1]);
  words[0] = c.x;
  words[1] = c.y;
  words[2] = c.z;
  words[3] = c.w;
}

void openreg_philox_block(uint64_t seed, uint64_t subsequence, uint64_t block, uint32_t words[4]) {
  const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)subsequence,
                               (uint32_t)(subsequence >> 32)};
  const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  openreg_philox4x32_10(counter, key, words);
}

void philox_fill(uint64_t seed, uint64_t first, uint64_t block, unsigned count,
                 philox_words *words) {
  assert(count <= PHILOX_BATCH);
  const uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  const uint32_t low = (uint32_t)first, high = (uint32_t)(first >> 32);
  const uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32);
  for (unsigned j = 0; j < count; j++) {
    uint32_t c2 = low + j;
    uint32_t c3 = high + (c2 < low);
    quadruple c = rounds((quadruple){c0, c1, c2, c3}, k0, k1);
    words->lane[0][j] = c.x;
    words->lane[1][j] = c.y;
    words->lane[2][j] = c.z;
    words->lane[3][j] = c.w;
  }
}
