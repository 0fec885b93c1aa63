/* half.h: conversions between float16 or bfloat16 and float, for kernels of all layers.
 *
 * Narrowing rounds to nearest, ties to even, including subnormals. Widening is exact. The functions
 * have no branches, so loops over them vectorize on any machine. They do not use float subnormals,
 * so threads that flush subnormals to zero get the same results. The processor must be in
 * round-to-nearest mode, which is the default of C programs.
 *
 * NaNs can be narrowed in two ways. Processors keep the sign and the upper payload bits and set the
 * quiet bit. CUDA converts every NaN to 0x7FFF in both types (CUDART_NAN_FP16, CUDART_NAN_BF16).
 */
#ifndef OPENREG_BASE_HALF_H
#define OPENREG_BASE_HALF_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
  HALF_SIGN = 0x8000,
  HALF_MINIMUM_NORMAL = 0x0400,
  HALF_INFINITY = 0x7C00,
  HALF_QUIET_NAN = 0x7E00,
  HALF_MANTISSA = 0x03FF,
  BFLOAT16_INFINITY = 0x7F80,
  CUDA_NAN = 0x7FFF,
  FLOAT_INFINITY_BITS = 0x7F800000,
  FLOAT_QUIET_BIT = 0x00400000,
  /* Mantissas have 23 and 10 bits; exponent biases are 127 and 15. */
  HALF_SHIFT = 23 - 10,
  HALF_EXPONENT_DISTANCE = (127 - 15) << 23,
  MINIMUM_NORMAL_AS_FLOAT = HALF_EXPONENT_DISTANCE + (1 << 23), /* 2^-14 */
  OVERFLOW_AS_FLOAT =
      HALF_EXPONENT_DISTANCE + (31 << 23), /* 2^16: overflows to infinity without rounding */
};

static inline uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint32_t magnitude_bits(float value) {
  return float_bits(value) & 0x7FFFFFFF;
}

static inline bool float_is_nan(float value) {
  return magnitude_bits(value) > FLOAT_INFINITY_BITS;
}

/* ---- widening -------------------------------------------------------------------------------- */

static inline float float_of_half(uint16_t half) {
  uint32_t sign = (uint32_t)(half & HALF_SIGN) << 16;
  uint32_t magnitude = half & 0x7FFF;
  uint32_t normal = (magnitude << HALF_SHIFT) + HALF_EXPONENT_DISTANCE;
  uint32_t infinite = FLOAT_INFINITY_BITS | magnitude << HALF_SHIFT;
  float subnormal = (float)(int32_t)magnitude * 0x1p-24f;
  uint32_t finite = magnitude < HALF_MINIMUM_NORMAL ? float_bits(subnormal) : normal;
  return float_of_bits(sign | (magnitude >= HALF_INFINITY ? infinite : finite));
}

static inline float float_of_bfloat16(uint16_t bfloat16) {
  return float_of_bits((uint32_t)bfloat16 << 16);
}

/* ---- narrowing ------------------------------------------------------------------------------- */

/* Rounds away the low `dropped` bits. Adds half a unit minus one, plus one more if the remaining
 * number is odd. A carry out of the mantissa increments the exponent, which gives the next number;
 * beyond the largest number it gives infinity. */
static inline uint32_t round_bits_to_even(uint32_t bits, int dropped) {
  uint32_t below_half = (UINT32_C(1) << (dropped - 1)) - 1;
  return (bits + below_half + (bits >> dropped & 1)) >> dropped;
}

/* The result for a NaN is unspecified. */
static inline uint32_t half_of_number(float value) {
  uint32_t sign = float_bits(value) >> 16 & HALF_SIGN;
  uint32_t magnitude = magnitude_bits(value);
  uint32_t normal = round_bits_to_even(magnitude - HALF_EXPONENT_DISTANCE, HALF_SHIFT);
  /* For numbers in [0.5, 1) a float's last place is 2^-24, which is the smallest float16. The
   * addition therefore rounds correctly. */
  uint32_t subnormal = float_bits(float_of_bits(magnitude) + 0.5f) - float_bits(0.5f);
  uint32_t finite = magnitude < MINIMUM_NORMAL_AS_FLOAT ? subnormal : normal;
  return sign | (magnitude >= OVERFLOW_AS_FLOAT ? HALF_INFINITY : finite);
}

/* Converts NaNs as processors do. */
static inline uint16_t half_of_float(float value) {
  uint32_t sign = float_bits(value) >> 16 & HALF_SIGN;
  uint32_t payload = magnitude_bits(value) >> HALF_SHIFT & HALF_MANTISSA;
  uint32_t nan = sign | HALF_QUIET_NAN | payload;
  return (uint16_t)(float_is_nan(value) ? nan : half_of_number(value));
}

static inline uint16_t cuda_half_of_float(float value) {
  return (uint16_t)(float_is_nan(value) ? CUDA_NAN : half_of_number(value));
}

/* Returns a float whose upper half is the bfloat16. Converts NaNs as processors do. The lower half
 * is unspecified. */
static inline uint32_t bfloat16_in_upper_half(float value) {
  uint32_t bits = float_bits(value);
  uint32_t rounded = bits + 0x7FFF + (bits >> 16 & 1);
  uint32_t nan = bits | FLOAT_QUIET_BIT;
  return float_is_nan(value) ? nan : rounded;
}

static inline uint16_t bfloat16_of_float(float value) {
  return (uint16_t)(bfloat16_in_upper_half(value) >> 16);
}

static inline uint16_t cuda_bfloat16_of_float(float value) {
  uint32_t number = round_bits_to_even(float_bits(value), 16);
  return (uint16_t)(float_is_nan(value) ? CUDA_NAN : number);
}

#endif
