/* lanes.c: the hot loops. See lanes.h; the build defines LANES_TABLE, the name of the table. */
#include "lanes.h"

#include "rounds.h"
#include "rounds_wide.h"
#include "words.h"

#include <math.h>

static void fill(uint64_t seed, uint64_t first, uint64_t block, unsigned count,
                 philox_words *words) {
  const uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  const uint32_t low = (uint32_t)first, high = (uint32_t)(first >> 32);
  const uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32);
  unsigned j = 0;
#if defined(__AVX2__)
  if (low <= UINT32_MAX - PHILOX_BATCH) {
    for (; j + WIDE_COUNTERS <= count; j += WIDE_COUNTERS)
      wide_rounds(c0, c1, low + j, high, k0, k1, &words->lane[0][j], PHILOX_BATCH);
  }
#endif
  for (; j < count; j++) {
    uint32_t c2 = low + j;
    uint32_t c3 = high + (c2 < low);
    quadruple c = rounds((quadruple){c0, c1, c2, c3}, k0, k1);
    words->lane[0][j] = c.x;
    words->lane[1][j] = c.y;
    words->lane[2][j] = c.z;
    words->lane[3][j] = c.w;
  }
}

/* With from = 0 the product alone is the same number, and without FMA instructions a loop without
 * a call. */
static void scale(const uint32_t *words, unsigned count, float range, float from, float *values) {
  if (from == 0.0f) {
    for (unsigned j = 0; j < count; j++)
      values[j] = uniform_float(words[j]) * range;
  } else {
    for (unsigned j = 0; j < count; j++)
      values[j] = fmaf(uniform_float(words[j]), range, from);
  }
}

static void below(const uint32_t *words, unsigned count, float p, float *ones) {
  for (unsigned j = 0; j < count; j++)
    ones[j] = uniform_float(words[j]) < p ? 1.0f : 0.0f;
}

static void remainders(const uint32_t *words, unsigned count, divisor d, uint32_t *to) {
  for (unsigned j = 0; j < count; j++) {
    const uint32_t word = words[j];
    const uint32_t high = (uint32_t)((uint64_t)d.multiplier * word >> 32);
    const uint32_t quotient = (high + ((word - high) >> d.first_shift)) >> d.second_shift;
    to[j] = word - quotient * d.value;
  }
}

#define TEXT_OF(name) TEXT(name)
#define TEXT(name)    #name

const lanes LANES_TABLE = {TEXT_OF(LANES_TABLE), fill, scale, below, remainders};
