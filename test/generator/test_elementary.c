/* test_elementary.c: the error of the float functions, compared with the C library's in double. */
#include "check.h"
#include "generator/lanes/elementary.h"

#include <float.h>
#include <math.h>

/* The distance of the tested floats, a prime number. */
enum { STEP = 211 };

static void logarithm_is_within_a_unit_of_its_last_place(void **state) {
  (void)state;
  for (uint32_t bits = float_bits(0x1p-33f); bits <= float_bits(16.0f); bits += STEP) {
    const float x = float_of_bits(bits);
    const double expected = log((double)x);
    const double unit = ldexp(1.0, ilogb(expected) - 23);
    if (!(fabs((double)logarithm(x) - expected) <= unit))
      fail_msg("ln %a: %a, expected %a", (double)x, (double)logarithm(x), expected);
  }
}

static void logarithm_next_to_1_is_the_nearest_float(void **state) {
  (void)state;
  assert_true(logarithm(1.0f) == 0.0f);
  assert_true(logarithm(1.0f - FLT_EPSILON / 2) == -FLT_EPSILON / 2);
  assert_true(logarithm(1.0f + FLT_EPSILON) == FLT_EPSILON - 0x1p-47f);
}

static void sine_and_cosine_are_within_their_bound(void **state) {
  (void)state;
  const float two_pi = 6.2831855f;
  for (uint32_t bits = float_bits(0x1p-34f); bits <= float_bits(two_pi); bits += STEP) {
    const float angle = float_of_bits(bits);
    float sine, cosine;
    sine_and_cosine(angle, &sine, &cosine);
    if (!(fabs((double)sine - sin((double)angle)) <= 0x1p-23 &&
          fabs((double)cosine - cos((double)angle)) <= 0x1p-23))
      fail_msg("%a: sine %a, cosine %a", (double)angle, (double)sine, (double)cosine);
  }
}

/* The Box-Muller method needs the sine of small angles with a small relative error. */
static void sine_of_a_small_angle_is_the_angle(void **state) {
  (void)state;
  float sine, cosine;
  sine_and_cosine(0x1p-20f, &sine, &cosine);
  assert_true(sine == 0x1p-20f && cosine == 1.0f);
  sine_and_cosine(0.0f, &sine, &cosine);
  assert_true(sine == 0.0f && cosine == 1.0f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(logarithm_is_within_a_unit_of_its_last_place),
      cmocka_unit_test(logarithm_next_to_1_is_the_nearest_float),
      cmocka_unit_test(sine_and_cosine_are_within_their_bound),
      cmocka_unit_test(sine_of_a_small_angle_is_the_angle),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
