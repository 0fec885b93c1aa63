/* keyed.c: random numbers that depend on a key alone, and keys derived from keys.
 *
 * Element i of a key's numbers comes from block key.offset + i / n of subsequence 0, where a block
 * gives n numbers. So the numbers do not depend on the grid, and all GPUs draw the same.
 */
#include "generator/distributions/box_muller.h"
#include "generator/lanes/rounds.h"
#include "generator/philox.h"
#include "generator/types.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static void fill_words(openreg_key key, uint64_t first, unsigned count, philox_words *words) {
  const uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
  for (unsigned j = 0; j < count; j++) {
    const uint64_t block = key.offset + first + j;
    const quadruple w = rounds((quadruple){(uint32_t)block, (uint32_t)(block >> 32), 0, 0}, k0, k1);
    words->lane[0][j] = w.x;
    words->lane[1][j] = w.y;
    words->lane[2][j] = w.z;
    words->lane[3][j] = w.w;
  }
}

openreg_key openreg_key_derive(openreg_key key, uint64_t index) {
  uint32_t words[4];
  openreg_philox_block(key.seed, 0, key.offset + index, words);
  return (openreg_key){.seed = words[0] | (uint64_t)words[1] << 32,
                       .offset = words[2] | (uint64_t)words[3] << 32};
}

/* The numbers of a batch of blocks, one block after the other. */
typedef union numbers {
  float floats[4 * PHILOX_BATCH];
  double doubles[2 * PHILOX_BATCH]; /* of float64 */
} numbers;

typedef void convert_blocks(const philox_words *words, unsigned count, const void *parameters,
                            numbers *results);

static void draw(openreg_type type, openreg_key key, uint64_t first, uint64_t count,
                 convert_blocks *convert, const void *parameters, void *elements) {
  assert(openreg_type_is_floating(type) && first % 4 == 0);
  const unsigned of_block = type == OPENREG_FLOAT64 ? 2 : 4;
  const size_t bytes = openreg_type_bytes(type);
  char *to = elements;
  while (count > 0) {
    const uint64_t left = (count + of_block - 1) / of_block;
    const unsigned blocks = left < PHILOX_BATCH ? (unsigned)left : PHILOX_BATCH;
    const uint64_t drawn = (uint64_t)of_block * blocks;
    const uint64_t wanted = drawn < count ? drawn : count;
    philox_words words;
    numbers results;
    fill_words(key, first / of_block, blocks, &words);
    convert(&words, blocks, parameters, &results);
    if (type == OPENREG_FLOAT16 || type == OPENREG_BFLOAT16)
      openreg_type_store_floats(type, results.floats, wanted, to);
    else
      memcpy(to, &results, wanted * bytes);
    first += wanted;
    count -= wanted;
    to += wanted * bytes;
  }
}

/* ---- uniform numbers --------------------------------------------------------------------------*/

/* The low bits of a word, as many as the type's significand has, are a fraction of 1. The range is
 * rounded to the type. */
typedef struct interval {
  double from, range;
  uint32_t mask;
  float unit;
} interval;

static void uniform_floats(const philox_words *words, unsigned count, const void *parameters,
                           numbers *results) {
  const interval *p = parameters;
  for (unsigned j = 0; j < count; j++)
    for (unsigned l = 0; l < 4; l++)
      results->floats[4 * j + l] =
          fmaf((float)(words->lane[l][j] & p->mask) * p->unit, (float)p->range, (float)p->from);
}

static void uniform_doubles(const philox_words *words, unsigned count, const void *parameters,
                            numbers *results) {
  const interval *p = parameters;
  for (unsigned j = 0; j < count; j++) {
    for (unsigned l = 0; l < 2; l++) {
      const uint64_t bits = (uint64_t)words->lane[2 * l][j] << 32 | words->lane[2 * l + 1][j];
      results->doubles[2 * j + l] =
          fma((double)(bits & ((UINT64_C(1) << 53) - 1)) * 0x1p-53, p->range, p->from);
    }
  }
}

static int significand_bits(openreg_type type) {
  return type == OPENREG_FLOAT16 ? 11 : type == OPENREG_BFLOAT16 ? 8 : 24;
}

void openreg_keyed_uniform(openreg_type type, openreg_key key, uint64_t first, uint64_t count,
                           double from, double to, void *elements) {
  if (type == OPENREG_FLOAT64) {
    const interval p = {.from = from, .range = to - from};
    draw(type, key, first, count, uniform_doubles, &p, elements);
    return;
  }
  const float low = openreg_type_round_float(type, (float)from);
  const float high = openreg_type_round_float(type, (float)to);
  const int bits = significand_bits(type);
  const interval p = {.from = low,
                      .range = openreg_type_round_float(type, high - low),
                      .mask = (UINT32_C(1) << bits) - 1,
                      .unit = ldexpf(1, -bits)};
  draw(type, key, first, count, uniform_floats, &p, elements);
}

/* ---- normal numbers ---------------------------------------------------------------------------*/

typedef struct distribution {
  double mean, deviation;
} distribution;

/* Each pair has the cosine first. cuRAND has the sine first. */
static void normal_floats(const philox_words *words, unsigned count, const void *parameters,
                          numbers *results) {
  const distribution *p = parameters;
  for (unsigned pair = 0; pair < 2; pair++) {
    float sines[PHILOX_BATCH], cosines[PHILOX_BATCH];
    openreg_box_muller_floats(words->lane[2 * pair], words->lane[2 * pair + 1], count, count,
                              (float)p->deviation, (float)p->mean, sines, cosines);
    for (unsigned j = 0; j < count; j++) {
      results->floats[4 * j + 2 * pair] = cosines[j];
      results->floats[4 * j + 2 * pair + 1] = sines[j];
    }
  }
}

/* A number in (0, 1) of 64 bits. */
static double open_unit(uint32_t high, uint32_t low) {
  return fma(high, 0x1p-32, low * 0x1p-64 + 0x1p-65);
}

static void normal_doubles(const philox_words *words, unsigned count, const void *parameters,
                           numbers *results) {
  const distribution *p = parameters;
  for (unsigned j = 0; j < count; j++) {
    const double radius = sqrt(-2.0 * log(open_unit(words->lane[0][j], words->lane[1][j])));
    const double angle = 6.2831853071795864 * open_unit(words->lane[2][j], words->lane[3][j]);
    results->doubles[2 * j] = fma(radius * cos(angle), p->deviation, p->mean);
    results->doubles[2 * j + 1] = fma(radius * sin(angle), p->deviation, p->mean);
  }
}

void openreg_keyed_normal(openreg_type type, openreg_key key, uint64_t first, uint64_t count,
                          double mean, double standard_deviation, void *elements) {
  const distribution p = {mean, standard_deviation};
  draw(type, key, first, count, type == OPENREG_FLOAT64 ? normal_doubles : normal_floats, &p,
       elements);
}
