/* rounds.h: the ten rounds of Philox4x32 as an inline function of scalars.
 *
 * J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2,
 * 3", SC11. There are no branches and no state. A loop over a batch has no dependence between
 * iterations, so compilers turn it into vector instructions.
 */
#ifndef OPENREG_GENERATOR_ROUNDS_H
#define OPENREG_GENERATOR_ROUNDS_H

#include <stdint.h>

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

#endif
