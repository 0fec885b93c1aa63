/* lanes.c: the hot loops. See lanes.h. The build defines LANES_TABLE, the name of the table. */
#include "generator/lanes/lanes.h"

#include "generator/lanes/elementary.h"
#include "generator/lanes/lanes_types.h"
#include "generator/lanes/rounds.h"
#include "generator/lanes/rounds_wide.h"
#include "generator/words.h"

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

/* ---- words to numbers ------------------------------------------------------------------------ */

/* With from = 0 the product alone is the same number. Without FMA instructions this loop needs no
 * function call. */
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

static void logarithms(const uint32_t *words, unsigned count, float *values) {
  for (unsigned j = 0; j < count; j++)
    values[j] = logarithm(uniform_float(words[j]));
}

/* 2 pi as cuRAND has it in float, times the step of a word. All three are exact in binary. */
#define TWO_PI_FLOAT 6.2831855f
#define ANGLE_STEP   (0x1p-32f * TWO_PI_FLOAT)
#define ANGLE_START  (0x1p-33f * TWO_PI_FLOAT)

static inline void normal_pair(uint32_t first, uint32_t second, float deviation, float mean,
                               float *from_sine, float *from_cosine) {
  float sine, cosine;
  const float radius = sqrtf(-2.0f * logarithm(uniform_float(first)));
  sine_and_cosine(fmaf((float)second, ANGLE_STEP, ANGLE_START), &sine, &cosine);
  *from_sine = fmaf(radius * sine, deviation, mean);
  *from_cosine = fmaf(radius * cosine, deviation, mean);
}

static void normals(const uint32_t *first, const uint32_t *second, unsigned sine_count,
                    unsigned cosine_count, float deviation, float mean, float *sines,
                    float *cosines) {
  for (unsigned j = 0; j < cosine_count; j++)
    normal_pair(first[j], second[j], deviation, mean, &sines[j], &cosines[j]);
  for (unsigned j = cosine_count; j < sine_count; j++) {
    float unwanted;
    normal_pair(first[j], second[j], deviation, mean, &sines[j], &unwanted);
  }
}

static void remainders(const uint32_t *words, unsigned count, divisor d, uint32_t base,
                       uint32_t *values) {
  for (unsigned j = 0; j < count; j++) {
    const uint32_t word = words[j];
    const uint32_t high = (uint32_t)((uint64_t)d.multiplier * word >> 32);
    const uint32_t quotient = (high + ((word - high) >> d.first_shift)) >> d.second_shift;
    values[j] = word - quotient * d.value + base;
  }
}

/* ---- pairs of words to numbers --------------------------------------------------------------- */

static void scale_doubles(const uint32_t *a, const uint32_t *b, unsigned count, double range,
                          double from, double *values) {
  for (unsigned j = 0; j < count; j++)
    values[j] = fma(uniform_double(a[j], b[j]), range, from);
}

static void below_doubles(const uint32_t *a, const uint32_t *b, unsigned count, double p,
                          double *ones) {
  for (unsigned j = 0; j < count; j++)
    ones[j] = uniform_double(a[j], b[j]) < p ? 1.0 : 0.0;
}

static void words_64(const uint32_t *a, const uint32_t *b, unsigned count, uint64_t base,
                     int64_t *values) {
  for (unsigned j = 0; j < count; j++)
    values[j] = (int64_t)(word_64(a[j], b[j]) + base);
}

static void remainders_64(const uint32_t *a, const uint32_t *b, unsigned count, divisor_64 d,
                          uint64_t base, int64_t *values) {
  for (unsigned j = 0; j < count; j++) {
    const uint64_t word = word_64(a[j], b[j]);
    const uint64_t high = (uint64_t)((unsigned __int128)d.multiplier * word >> 64);
    const uint64_t quotient = (high + ((word - high) >> d.first_shift)) >> d.second_shift;
    values[j] = (int64_t)(word - quotient * d.value + base);
  }
}

/* ---- numbers to numbers ---------------------------------------------------------------------- */

static void replace(float *values, unsigned count, float value, float replacement) {
  for (unsigned j = 0; j < count; j++)
    values[j] = values[j] == value ? replacement : values[j];
}

static void replace_doubles(double *values, unsigned count, double value, double replacement) {
  for (unsigned j = 0; j < count; j++)
    values[j] = values[j] == value ? replacement : values[j];
}

static void limit_and_multiply(float *values, unsigned count, float limit, float factor) {
  for (unsigned j = 0; j < count; j++)
    values[j] = (values[j] < limit ? values[j] : limit) * factor;
}

/* ---- dropout --------------------------------------------------------------------------------- */

/* The compiler makes one loop for each constant width. */
static inline __attribute__((always_inline)) void
interleave_width(const philox_words words[2], unsigned count, unsigned width, float *uniforms) {
  for (unsigned j = 0; j < count; j++) {
    for (unsigned e = 0; e < width; e++)
      uniforms[j * width + e] = uniform_float(words[e / 4].lane[e % 4][j]);
  }
}

static void interleave(const philox_words words[2], unsigned count, unsigned width,
                       float *uniforms) {
  switch (width) {
  case 8:
    return interleave_width(words, count, 8, uniforms);
  case 4:
    return interleave_width(words, count, 4, uniforms);
  case 2:
    return interleave_width(words, count, 2, uniforms);
  default:
    return interleave_width(words, count, 1, uniforms);
  }
}

static void drop(const float *uniforms, unsigned count, float keep, float scale, bool *mask,
                 float *values) {
  for (unsigned j = 0; j < count; j++)
    mask[j] = uniforms[j] < keep;
  for (unsigned j = 0; j < count; j++)
    values[j] = values[j] * (uniforms[j] < keep ? 1.0f : 0.0f) * scale;
}

/* ---- the table ------------------------------------------------------------------------------- */

const lanes LANES_TABLE = {
    .fill = fill,
    .scale = scale,
    .below = below,
    .logarithms = logarithms,
    .normals = normals,
    .remainders = remainders,
    .scale_doubles = scale_doubles,
    .below_doubles = below_doubles,
    .words_64 = words_64,
    .remainders_64 = remainders_64,
    .replace = replace,
    .replace_doubles = replace_doubles,
    .limit_and_multiply = limit_and_multiply,
    .interleave = interleave,
    .drop = drop,
    .store_floats = store_floats,
    .load_floats = load_floats,
    .round_floats = round_floats,
    .store_int32s = store_int32s,
    .store_int64s = store_int64s,
};
