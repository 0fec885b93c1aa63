/* half.h: float to float16 and bfloat16, and back.
 *
 * To the nearest, ties to even, subnormals included, without a branch, so that loops over arrays
 * vectorise. Back is exact. Every NaN becomes 0x7FFF, CUDA's canonical NaN of both types
 * (CUDART_NAN_FP16, CUDART_NAN_BF16). The processor must round to nearest, as a C program starts.
 */
#ifndef OPENREG_GENERATOR_HALF_H
#define OPENREG_GENERATOR_HALF_H

#include <stdint.h>
#include <string.h>

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

enum {
  HALF_NAN = 0x7FFF,
  HALF_INFINITY = 0x7C00,
  FLOAT_INFINITY_BITS = 0x7F800000,
  HALF_MINIMUM_NORMAL_BITS = 0x38800000,    /* 2^-14 as a float */
  HALF_OVERFLOW_BITS = 0x47800000,          /* 2^16 as a float: infinite without rounding */
  HALF_EXPONENT_DISTANCE = (127 - 15) << 23 /* difference of the exponents' biases */
};

/* Rounds away the low `dropped` bits of a number's bits. A carry out of the fraction moves to the
 * next exponent, which is the right neighbour; out of the largest number, to infinity. */
static inline uint32_t round_bits_to_even(uint32_t bits, int dropped) {
  uint32_t below_half = (UINT32_C(1) << (dropped - 1)) - 1;
  return (bits + below_half + (bits >> dropped & 1)) >> dropped;
}

static inline uint16_t half_of_float(float value) {
  uint32_t bits = float_bits(value);
  uint32_t sign = bits >> 16 & 0x8000;
  uint32_t magnitude = bits & 0x7FFFFFFF;
  uint32_t normal = round_bits_to_even(magnitude - HALF_EXPONENT_DISTANCE, 13);
  /* In [0.5, 1) a float's last place is 2^-24, the smallest float16: the addition rounds. */
  uint32_t subnormal = float_bits(float_of_bits(magnitude) + 0.5f) - float_bits(0.5f);
  uint32_t finite = magnitude < HALF_MINIMUM_NORMAL_BITS ? subnormal : normal;
  uint32_t number = sign | (magnitude >= HALF_OVERFLOW_BITS ? HALF_INFINITY : finite);
  return (uint16_t)(magnitude > FLOAT_INFINITY_BITS ? HALF_NAN : number);
}

static inline float float_of_half(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16;
  uint32_t magnitude = half & 0x7FFF;
  float subnormal = (float)(int32_t)magnitude * 0x1p-24f;
  uint32_t normal = (magnitude << 13) + HALF_EXPONENT_DISTANCE;
  uint32_t infinite = FLOAT_INFINITY_BITS | magnitude << 13;
  uint32_t finite = magnitude < 0x400 ? float_bits(subnormal) : normal;
  return float_of_bits(sign | (magnitude >= HALF_INFINITY ? infinite : finite));
}

static inline uint16_t bfloat16_of_float(float value) {
  uint32_t bits = float_bits(value);
  uint32_t number = round_bits_to_even(bits, 16);
  return (uint16_t)((bits & 0x7FFFFFFF) > FLOAT_INFINITY_BITS ? HALF_NAN : number);
}

static inline float float_of_bfloat16(uint16_t bfloat16) {
  return float_of_bits((uint32_t)bfloat16 << 16);
}

#endif
