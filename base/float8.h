/* float8.h: conversions between the two float8 formats of GPUs and float.
 *
 * E4M3 (PyTorch's float8_e4m3fn) has no infinity; E5M2 is the upper byte of a float16. Widening is
 * exact. Narrowing rounds to nearest, ties to even. As CUDA's types do by default, it saturates:
 * numbers beyond the largest one, and infinity, become the largest one. Every NaN becomes 0x7F.
 * As in half.h, the functions have no branches and do not use float subnormals.
 */
#ifndef OPENREG_BASE_FLOAT8_H
#define OPENREG_BASE_FLOAT8_H

#include "base/half.h"

enum {
  FLOAT8_SIGN = 0x80,
  FLOAT8_NAN = 0x7F,
  /* E4M3: 3 bits of mantissa, exponent bias 7, the largest number is 448. */
  E4M3_SHIFT = 23 - 3,
  E4M3_EXPONENT_DISTANCE = (127 - 7) << 23,
  E4M3_LARGEST = 0x7E,
  /* E5M2: 2 bits of mantissa, exponent bias 15, the largest number is 57344. */
  E5M2_SHIFT = 23 - 2,
  E5M2_EXPONENT_DISTANCE = (127 - 15) << 23,
  E5M2_LARGEST = 0x7B
};

static inline float float_of_e4m3(uint8_t e4m3) {
  uint32_t sign = (uint32_t)(e4m3 & FLOAT8_SIGN) << 24;
  uint32_t magnitude = e4m3 & 0x7F;
  uint32_t normal = (magnitude << E4M3_SHIFT) + E4M3_EXPONENT_DISTANCE;
  float subnormal = (float)(int32_t)magnitude * 0x1p-9f;
  uint32_t number = magnitude < 1 << 3 ? float_bits(subnormal) : normal;
  uint32_t nan = FLOAT_INFINITY_BITS | FLOAT_QUIET_BIT;
  return float_of_bits(sign | (magnitude == FLOAT8_NAN ? nan : number));
}

static inline float float_of_e5m2(uint8_t e5m2) {
  return float_of_half((uint16_t)(e5m2 << 8));
}

/* Rounds a magnitude. `unit` is a float whose last place is the smallest float8 of the format, so
 * that adding it rounds subnormal numbers correctly. */
static inline uint8_t float8_of_float(float value, int shift, uint32_t distance, float unit,
                                      uint32_t largest) {
  uint32_t sign = float_bits(value) >> 24 & FLOAT8_SIGN;
  uint32_t magnitude = magnitude_bits(value);
  uint32_t normal = round_bits_to_even(magnitude - distance, shift);
  uint32_t subnormal = float_bits(float_of_bits(magnitude) + unit) - float_bits(unit);
  uint32_t rounded = magnitude < distance + (1 << 23) ? subnormal : normal;
  uint32_t number = sign | (rounded > largest ? largest : rounded);
  return (uint8_t)(float_is_nan(value) ? FLOAT8_NAN : number);
}

static inline uint8_t e4m3_of_float(float value) {
  return float8_of_float(value, E4M3_SHIFT, E4M3_EXPONENT_DISTANCE, 0x1p14f, E4M3_LARGEST);
}

static inline uint8_t e5m2_of_float(float value) {
  return float8_of_float(value, E5M2_SHIFT, E5M2_EXPONENT_DISTANCE, 0x1p7f, E5M2_LARGEST);
}

#endif
