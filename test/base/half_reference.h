/* half_reference.h: float16 and bfloat16 computed with the mathematics library from the definitions
 * of the formats, independently of half.h, for comparison.
 */
#ifndef OPENREG_TEST_HALF_REFERENCE_H
#define OPENREG_TEST_HALF_REFERENCE_H

#include <math.h>
#include <stdint.h>

typedef struct half_format {
  int exponent_bits, mantissa_bits;
} half_format;

static const half_format F16 = {5, 10}, BF16 = {8, 7};

/* The value that the `bits` of a half encode. */
static inline double reference_value(half_format format, uint16_t bits) {
  int bias = (1 << (format.exponent_bits - 1)) - 1;
  int all_ones = (1 << format.exponent_bits) - 1;
  int exponent = bits >> format.mantissa_bits & all_ones;
  int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  double magnitude;
  if (exponent == all_ones)
    magnitude = mantissa ? NAN : INFINITY;
  else if (exponent == 0)
    magnitude = ldexp(mantissa, 1 - bias - format.mantissa_bits);
  else
    magnitude =
        ldexp(mantissa + (1 << format.mantissa_bits), exponent - bias - format.mantissa_bits);
  return bits & 0x8000 ? -magnitude : magnitude;
}

/* The value of the half nearest to a number, ties to even. */
static inline double reference_rounded(half_format format, double value) {
  if (!isfinite(value) || value == 0)
    return value;
  int bias = (1 << (format.exponent_bits - 1)) - 1;
  int exponent;
  frexp(value, &exponent); /* 2^(exponent-1) <= |value| < 2^exponent */
  int lowest = 1 - bias;
  int ulp = (exponent - 1 < lowest ? lowest : exponent - 1) - format.mantissa_bits;
  double rounded = ldexp(nearbyint(ldexp(value, -ulp)), ulp);
  return fabs(rounded) >= ldexp(1, bias + 1) ? copysign(INFINITY, value) : rounded;
}

/* Equal in value and sign, or both NaN. */
static inline int same_number(double a, double b) {
  return isnan(a) ? isnan(b) : a == b && !signbit(a) == !signbit(b);
}

#endif
