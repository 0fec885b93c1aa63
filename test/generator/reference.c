/* reference.c: see reference.h. */
#include "reference.h"

#include <math.h>
#include <string.h>

void reference_philox(uint64_t seed, uint64_t subsequence, uint64_t block, uint32_t words[4]) {
  uint64_t counter[4] = {block & UINT32_MAX, block >> 32, subsequence & UINT32_MAX,
                         subsequence >> 32};
  for (uint64_t round = 0; round < 10; round++) {
    uint64_t key_0 = ((seed & UINT32_MAX) + round * 2654435769u) & UINT32_MAX;
    uint64_t key_1 = ((seed >> 32) + round * 3144134277u) & UINT32_MAX;
    uint64_t product_0 = counter[0] * 3528531795u;
    uint64_t product_2 = counter[2] * 3449720151u;
    uint64_t next[4] = {(product_2 >> 32) ^ counter[1] ^ key_0, product_2 & UINT32_MAX,
                        (product_0 >> 32) ^ counter[3] ^ key_1, product_0 & UINT32_MAX};
    memcpy(counter, next, sizeof counter);
  }
  for (int i = 0; i < 4; i++)
    words[i] = (uint32_t)counter[i];
}

uint64_t reference_threads(uint64_t n, openreg_grid grid) {
  uint64_t most = (uint64_t)(grid.max_threads_per_multiprocessor / 256);
  most *= (uint64_t)grid.multiprocessor_count;
  uint64_t blocks = (n + 255) / 256;
  return (blocks > most ? most : blocks) * 256;
}

uint64_t reference_increment(uint64_t n, openreg_grid grid, int results_per_call) {
  uint64_t a_round = reference_threads(n, grid) * (uint64_t)results_per_call;
  return (n + a_round - 1) / a_round * 4;
}

reference_draw reference_draw_of(uint64_t i, uint64_t n, openreg_philox philox, openreg_grid grid,
                                 int results_per_call) {
  reference_draw draw;
  uint64_t threads = reference_threads(n, grid);
  uint64_t turn = i / threads;
  draw.result = (int)(turn % (uint64_t)results_per_call);
  reference_philox(philox.seed, i % threads, philox.offset / 4 + turn / (uint64_t)results_per_call,
                   draw.words);
  return draw;
}

float reference_uniform_of_word(uint32_t word) {
  return ldexpf((float)word, -32) + ldexpf(1.0f, -33);
}

static double two_words(uint32_t a, uint32_t b) {
  return (double)((uint64_t)a ^ (uint64_t)b * 2097152u);
}

double reference_uniform(const reference_draw *draw, bool in_double) {
  if (!in_double)
    return (double)reference_uniform_of_word(draw->words[draw->result]);
  const uint32_t *pair = draw->words + 2 * draw->result;
  return ldexp(two_words(pair[0], pair[1]), -53) + ldexp(1.0, -54);
}

/* In long double, so that only the implementation's own rounding differs. */
double reference_normal(const reference_draw *draw, bool in_double) {
  long double u, angle;
  if (in_double) {
    u = ldexp(two_words(draw->words[0], draw->words[1]), -53) + ldexp(1.0, -54);
    angle = ldexp(two_words(draw->words[2], draw->words[3]), -52) + ldexp(1.0, -53);
    angle *= acosl(-1.0L);
  } else {
    const uint32_t *pair = draw->words + draw->result / 2 * 2;
    u = reference_uniform_of_word(pair[0]);
    angle = ((long double)(float)pair[1] + 0.5L) * ldexpl(6.2831855f, -32);
  }
  const long double radius = sqrtl(-2.0L * logl(u));
  return (double)(radius * (draw->result % 2 ? cosl(angle) : sinl(angle)));
}

uint64_t reference_word(const reference_draw *draw, int results_per_call) {
  if (results_per_call == 4)
    return draw->words[draw->result];
  const uint32_t *pair = draw->words + 2 * draw->result;
  return pair[0] * UINT64_C(4294967296) + pair[1];
}

uint32_t reference_stream_word(reference_stream *stream) {
  uint32_t words[4];
  const uint64_t word = stream->philox.offset + stream->read++;
  reference_philox(stream->philox.seed, stream->subsequence, word / 4, words);
  return words[word % 4];
}

double reference_stream_uniform(reference_stream *stream) {
  return (double)reference_uniform_of_word(reference_stream_word(stream));
}

static double round_to(double value, int digits, int least_exponent, double largest) {
  if (value == 0 || isinf(value) || isnan(value))
    return value;
  int exponent;
  frexp(value, &exponent);
  int place = exponent - digits > least_exponent ? exponent - digits : least_exponent;
  double rounded = ldexp(nearbyint(ldexp(value, -place)), place);
  return fabs(rounded) > largest ? copysign(INFINITY, value) : rounded;
}

double reference_round(openreg_type type, double value) {
  switch (type) {
  case OPENREG_FLOAT16:
    return round_to(value, 11, -24, 65504.0);
  case OPENREG_BFLOAT16:
    return round_to(value, 8, -133, ldexp(255.0, 120));
  case OPENREG_FLOAT32:
    return (double)(float)value;
  default:
    return value;
  }
}

static double decode(uint16_t bits, int fraction_bits, int bias) {
  int exponent = (bits & 0x7FFF) >> fraction_bits;
  int fraction = bits & ((1 << fraction_bits) - 1);
  double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == (1 << (15 - fraction_bits)) - 1)
    return fraction ? NAN : sign * INFINITY;
  if (exponent == 0)
    return sign * ldexp(fraction, 1 - bias - fraction_bits);
  return sign * ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

#define ELEMENT(type) ((double)((const type *)elements)[index])

double reference_element(openreg_type type, const void *elements, uint64_t index) {
  switch (type) {
  case OPENREG_UINT8:
    return ELEMENT(uint8_t);
  case OPENREG_INT8:
    return ELEMENT(int8_t);
  case OPENREG_INT16:
    return ELEMENT(int16_t);
  case OPENREG_INT32:
    return ELEMENT(int32_t);
  case OPENREG_INT64:
    return ELEMENT(int64_t);
  case OPENREG_UINT16:
    return ELEMENT(uint16_t);
  case OPENREG_UINT32:
    return ELEMENT(uint32_t);
  case OPENREG_UINT64:
    return ELEMENT(uint64_t);
  case OPENREG_BOOL:
    return ELEMENT(uint8_t);
  case OPENREG_FLOAT16:
    return decode(((const uint16_t *)elements)[index], 10, 15);
  case OPENREG_BFLOAT16:
    return decode(((const uint16_t *)elements)[index], 7, 127);
  case OPENREG_FLOAT32:
    return ELEMENT(float);
  case OPENREG_FLOAT64:
    return ELEMENT(double);
  }
  return NAN;
}

/* Non-negative numbers of a 16-bit type have the order of their bits. */
static uint16_t encode(openreg_type type, double value) {
  const uint16_t sign = signbit(value) ? 0x8000 : 0;
  uint16_t bits = 0;
  for (uint16_t bit = 0x4000; bit; bit = (uint16_t)(bit >> 1)) {
    const uint16_t more = bits | bit;
    if (reference_element(type, &more, 0) <= fabs(value))
      bits = more;
  }
  return isnan(value) ? 0x7FFF : sign | bits;
}

double reference_put(openreg_type type, void *elements, uint64_t index, double value) {
  const double rounded = reference_round(type, value);
  if (type == OPENREG_FLOAT64)
    ((double *)elements)[index] = rounded;
  else if (type == OPENREG_FLOAT32)
    ((float *)elements)[index] = (float)rounded;
  else
    ((uint16_t *)elements)[index] = encode(type, rounded);
  return rounded;
}

bool reference_is_untouched(openreg_type type, const void *elements, uint64_t index, int pattern) {
  size_t bytes = openreg_type_bytes(type);
  const uint8_t *element = (const uint8_t *)elements + index * bytes;
  for (size_t b = 0; b < bytes; b++) {
    if (element[b] != pattern)
      return false;
  }
  return true;
}
