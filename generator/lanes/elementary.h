/* elementary.h: logarithm, sine and cosine of floats, from operations that every machine has.
 *
 * They use single additions and multiplications, never fused (-ffp-contract=off), and no branches
 * or tables. So loops of them become vector instructions, and every instruction set and C library
 * gives the same bits. The coefficients are minimax fits for these intervals, rounded to float.
 */
#ifndef OPENREG_GENERATOR_ELEMENTARY_H
#define OPENREG_GENERATOR_ELEMENTARY_H

#include "base/half.h"

/* Returns ln x of a positive normal x, within one unit in the last place; exactly 0 for 1.
 *
 * With x = 2^e (1 + f), f from sqrt(1/2) - 1 to sqrt(2) - 1: ln(1 + f) = f - f^2/2 + f^3 P(f). ln 2
 * is split so that e times its upper part is exact. The relative error of the fit is 2^-27.
 */
static inline float logarithm(float x) {
  const uint32_t root_of_half_bits = 0x3F3504F3;
  const float upper = 0x1.62e4p-1f, lower = 0x1.7f7d1cp-20f;
  const int32_t e = (int32_t)(float_bits(x) - root_of_half_bits) >> 23;
  const float f = float_of_bits(float_bits(x) - ((uint32_t)e << 23)) - 1.0f;
  float p = -0x1.38b4ccp-4f;
  p = p * f + 0x1.055b46p-3f;
  p = p * f - 0x1.0d8552p-3f;
  p = p * f + 0x1.22da22p-3f;
  p = p * f - 0x1.547244p-3f;
  p = p * f + 0x1.99a008p-3f;
  p = p * f - 0x1.000228p-2f;
  p = p * f + 0x1.555554p-2f;
  const float square = f * f;
  const float tail = square * f * p + (float)e * lower;
  return (float)e * upper + (f + (tail - 0.5f * square));
}

/* Returns the sine and cosine of an angle from 0 to 2 pi, within 2^-23.
 *
 * The angle minus the nearest multiple of pi/2, whose upper part is exact in the product, lies
 * within pi/4 of 0, where both are polynomials. Then the results are exchanged and negated as
 * necessary.
 */
static inline void sine_and_cosine(float angle, float *sine, float *cosine) {
  const float upper = 0x1.921fcp+0f, lower = -0x1.5777a6p-21f;
  const int32_t quarter_turns = (int32_t)(angle * 0x1.45f306p-1f + 0.5f);
  const float x = (angle - (float)quarter_turns * upper) - (float)quarter_turns * lower;
  const float square = x * x;
  const float s = (square * -0.00019517235f + 0.008332178f) * square - 0.16666655f;
  const float c = (square * 2.4438379e-05f - 0.0013887367f) * square + 0.041666646f;
  const float near_sine = x + x * square * s;
  const float near_cosine = 1.0f - (0.5f * square - square * square * c);
  const uint32_t odd = -((uint32_t)quarter_turns & 1); /* all ones, or zero */
  const uint32_t sine_sign = ((uint32_t)quarter_turns & 2) << 30;
  const uint32_t cosine_sign = ((uint32_t)(quarter_turns + 1) & 2) << 30;
  const uint32_t a = float_bits(near_sine), b = float_bits(near_cosine);
  *sine = float_of_bits(((a & ~odd) | (b & odd)) ^ sine_sign);
  *cosine = float_of_bits(((b & ~odd) | (a & odd)) ^ cosine_sign);
}

#endif
