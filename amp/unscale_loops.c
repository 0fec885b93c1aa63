/* unscale_loops.c: multiplies gradients and detects infinities and NaN in one pass. See
 * unscale_loops.h. The build defines UNSCALE_TABLE, the name of the table.
 *
 * The loops keep their finding in a local variable, because a store through a pointer in each
 * iteration would prevent vectorization. Like CUDA, they skip a factor of 1: the values keep their
 * bits, even those of a signaling NaN.
 */
#include "amp/unscale_loops.h"

#include "base/half.h"

#if defined(__AVX512F__) || defined(__F16C__)
#include <immintrin.h>
#endif

static inline uint32_t is_bad_f16(uint16_t gradient) {
  return (gradient & HALF_INFINITY) == HALF_INFINITY;
}
static inline uint32_t is_bad_bf16(uint16_t gradient) {
  return (gradient & BFLOAT16_INFINITY) == BFLOAT16_INFINITY;
}
static inline uint32_t is_bad_f32(float gradient) {
  return (float_bits(gradient) & FLOAT_INFINITY_BITS) == FLOAT_INFINITY_BITS;
}
static inline uint32_t is_bad_f64(double gradient) {
  const uint64_t infinity = UINT64_C(0x7ff0000000000000);
  uint64_t bits;
  memcpy(&bits, &gradient, sizeof bits);
  return (bits & infinity) == infinity;
}

static inline uint16_t scaled_f16(uint16_t gradient, float factor) {
  return half_of_float(float_of_half(gradient) * factor);
}
static inline uint16_t scaled_bf16(uint16_t gradient, float factor) {
  return bfloat16_of_float(float_of_bfloat16(gradient) * factor);
}
static inline float scaled_f32(float gradient, float factor) {
  return gradient * factor;
}
static inline double scaled_f64(double gradient, float factor) {
  return gradient * factor;
}

#define DEFINE_LOOP(suffix, element)                                                               \
  static bool loop_##suffix(element *gradients, size_t count, float factor) {                      \
    uint32_t bad = 0;                                                                              \
    if (factor == 1) {                                                                             \
      for (size_t i = 0; i < count; i++)                                                           \
        bad |= is_bad_##suffix(gradients[i]);                                                      \
    } else {                                                                                       \
      for (size_t i = 0; i < count; i++) {                                                         \
        bad |= is_bad_##suffix(gradients[i]);                                                      \
        gradients[i] = scaled_##suffix(gradients[i], factor);                                      \
      }                                                                                            \
    }                                                                                              \
    return bad;                                                                                    \
  }

DEFINE_LOOP(f16, uint16_t)
DEFINE_LOOP(bf16, uint16_t)
DEFINE_LOOP(f32, float)
DEFINE_LOOP(f64, double)

/* ---- halves, faster: what does not fill a vector goes to the loops above --------------------- */

#if defined(__AVX512F__)
enum { WIDE = 16 };
#else
enum { WIDE = 8 };
#endif

static bool wide_f16(uint16_t *gradients, size_t count, float factor) {
#if defined(__AVX512F__) || defined(__F16C__)
  typedef uint16_t halves __attribute__((vector_size(WIDE * sizeof(uint16_t))));
  typedef float floats __attribute__((vector_size(WIDE * sizeof(float))));
  halves bad = {0};
  size_t i = 0;
  for (; factor != 1 && i + WIDE <= count; i += WIDE) {
    halves wide;
    memcpy(&wide, gradients + i, sizeof wide);
    bad |= (halves)((wide & HALF_INFINITY) == HALF_INFINITY);
#if defined(__AVX512F__)
    floats products = (floats)_mm512_cvtph_ps((__m256i)wide) * factor;
    wide = (halves)_mm512_cvtps_ph((__m512)products, _MM_FROUND_TO_NEAREST_INT);
#else
    floats products = (floats)_mm256_cvtph_ps((__m128i)wide) * factor;
    wide = (halves)_mm256_cvtps_ph((__m256)products, _MM_FROUND_TO_NEAREST_INT);
#endif
    memcpy(gradients + i, &wide, sizeof wide);
  }
  bool found = loop_f16(gradients + i, count - i, factor);
  for (int lane = 0; lane < WIDE; lane++)
    found |= bad[lane] != 0;
  return found;
#else
  return loop_f16(gradients, count, factor);
#endif
}

/* Each 32-bit word has two values, and each half of it is the upper half of a float. So nothing is
 * unpacked and packed again. The order of the two in memory does not matter. */
static bool wide_bf16(uint16_t *gradients, size_t count, float factor) {
  const uint32_t upper = 0xffff0000;
  uint32_t bad = 0;
  size_t i = 0;
  for (; factor != 1 && i + 2 <= count; i += 2) {
    uint32_t pair;
    memcpy(&pair, gradients + i, sizeof pair);
    float left = float_of_bits(pair & upper), right = float_of_bits(pair << 16);
    bad |= is_bad_f32(left) | is_bad_f32(right);
    pair = (bfloat16_in_upper_half(left * factor) & upper) |
           bfloat16_in_upper_half(right * factor) >> 16;
    memcpy(gradients + i, &pair, sizeof pair);
  }
  bool found = loop_bf16(gradients + i, count - i, factor);
  return found | (bad != 0);
}

const unscale_loops UNSCALE_TABLE = {wide_f16, wide_bf16, loop_f32, loop_f64};
