/* half.h: IEEE binary16 and bfloat16 to binary32 and back, exactly, rounding to nearest even.
 *
 * Written without branches, so that loops over them vectorise on any machine, and without float
 * subnormals as operands, so that a thread which flushes those to zero gets the same results.
 * A NaN becomes a quiet NaN of the same sign with the upper bits of its payload, as the
 * instructions that do the same have it.
 */
#ifndef OPENREG_AMP_HALF_H
#define OPENREG_AMP_HALF_H

#include <stdint.h>
#include <string.h>

enum {
  F16_SIGN = 0x8000,
  F16_INFINITY = 0x7c00,
  F16_QUIET_NAN = 0x7e00,
  F16_MANTISSA = 0x03ff,
  BF16_INFINITY = 0x7f80,
  F32_INFINITY = 0x7f800000,
  F32_QUIET_BIT = 0x00400000,
  /* Mantissas have 23 and 10 bits, exponents are biased by 127 and 15. */
  F16_MANTISSA_SHIFT = 23 - 10,
  F16_REBIAS = (127 - 15) << 23,
  F16_MIN_NORMAL_AS_F32 = F16_REBIAS + (1 << 23), /* 2^-14 */
  F16_LIMIT_AS_F32 = F16_REBIAS + (31 << 23),     /* 2^16: infinite from here on */
};

static inline uint32_t bits_of_f32(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float f32_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline float f32_from_f16(uint16_t half) {
  uint32_t shifted = (uint32_t)(half & ~F16_SIGN & 0xffff) << F16_MANTISSA_SHIFT;
  uint32_t normal = shifted + F16_REBIAS;
  uint32_t infinite_or_nan = shifted | F32_INFINITY;
  /* A subnormal's bits below an implicit one are 2^-14 + its value. */
  uint32_t subnormal = bits_of_f32(f32_of_bits(shifted + F16_MIN_NORMAL_AS_F32) - 0x1p-14f);

  uint32_t bits = normal;
  bits = shifted < (1u << 23) ? subnormal : bits;
  bits = shifted >= (31u << 23) ? infinite_or_nan : bits;
  return f32_of_bits(bits | (uint32_t)(half & F16_SIGN) << 16);
}

static inline uint16_t f16_from_f32(float value) {
  uint32_t sign = bits_of_f32(value) >> 16 & F16_SIGN;
  uint32_t magnitude = bits_of_f32(value) & 0x7fffffff;
  /* Adding half an ulp less one, and one more for an odd mantissa, rounds to nearest even; a carry
   * out of the mantissa is the next exponent, in the end infinity. */
  uint32_t odd = magnitude >> F16_MANTISSA_SHIFT & 1;
  uint32_t normal = (magnitude - F16_REBIAS + 0xfff + odd) >> F16_MANTISSA_SHIFT;
  /* One ulp of 0.5f is 2^-24, the smallest f16: the addition does the rounding. */
  float small = f32_of_bits(magnitude < F16_MIN_NORMAL_AS_F32 ? magnitude : 0);
  uint32_t subnormal = bits_of_f32(small + 0.5f) - bits_of_f32(0.5f);
  uint32_t nan = F16_QUIET_NAN | (magnitude >> F16_MANTISSA_SHIFT & F16_MANTISSA);

  uint32_t bits = normal;
  bits = magnitude < F16_MIN_NORMAL_AS_F32 ? subnormal : bits;
  bits = magnitude >= F16_LIMIT_AS_F32 ? F16_INFINITY : bits;
  bits = magnitude > F32_INFINITY ? nan : bits;
  return (uint16_t)(sign | bits);
}

static inline float f32_from_bf16(uint16_t half) {
  return f32_of_bits((uint32_t)half << 16);
}

/* The bits of a float whose upper half is the nearest bf16; what is below has no meaning. */
static inline uint32_t bf16_in_upper_half(float value) {
  uint32_t bits = bits_of_f32(value);
  uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
  uint32_t nan = bits | F32_QUIET_BIT;
  return (bits & 0x7fffffff) > F32_INFINITY ? nan : rounded;
}

static inline uint16_t bf16_from_f32(float value) {
  return (uint16_t)(bf16_in_upper_half(value) >> 16);
}

#endif
