/* test_float8.c: compares the conversions between float8 and float with the definitions of the
 * formats: every float8, every number half way between two, and the neighbours of each.
 */
#include "base/float8.h"
#include "child.h"

#include <math.h>

struct format {
  int mantissa_bits, bias;
  int largest; /* the bits of the largest number */
  float (*widen)(uint8_t);
  uint8_t (*narrow)(float);
};

static const struct format E4M3 = {3, 7, 0x7E, float_of_e4m3, e4m3_of_float};
static const struct format E5M2 = {2, 15, 0x7B, float_of_e5m2, e5m2_of_float};

/* The value of a positive number of the format. */
static double value_of(const struct format *format, int bits) {
  int exponent = bits >> format->mantissa_bits,
      mantissa = bits & ((1 << format->mantissa_bits) - 1);
  int lowest = 1 - format->bias - format->mantissa_bits;
  return exponent == 0 ? ldexp(mantissa, lowest)
                       : ldexp(mantissa + (1 << format->mantissa_bits), lowest + exponent - 1);
}

static void assert_both_signs(const struct format *format, float value, int bits) {
  assert_int_equal(format->narrow(value), bits);
  assert_int_equal(format->narrow(-value), bits | 0x80);
}

static void assert_widens(const struct format *format) {
  for (int bits = 0; bits <= format->largest; bits++) {
    assert_true((double)format->widen((uint8_t)bits) == value_of(format, bits));
    float negative = format->widen((uint8_t)(bits | 0x80));
    assert_true((double)negative == -value_of(format, bits) && signbit(negative));
  }
  assert_true(isnan(format->widen(0x7F)) && isnan(format->widen(0xFF)));
}

static void assert_narrows(const struct format *format) {
  for (int bits = 0; bits < format->largest; bits++) {
    double below = value_of(format, bits), above = value_of(format, bits + 1);
    float middle = (float)((below + above) / 2);
    assert_both_signs(format, (float)below, bits);
    assert_both_signs(format, nextafterf(middle, 0), bits);
    assert_both_signs(format, middle, bits % 2 == 0 ? bits : bits + 1);
    assert_both_signs(format, nextafterf(middle, INFINITY), bits + 1);
  }
  float largest = (float)value_of(format, format->largest);
  const float beyond[] = {largest, nextafterf(largest, INFINITY), 2 * largest, 0x1p127f, INFINITY};
  for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++)
    assert_both_signs(format, beyond[i], format->largest);
  assert_int_equal(format->narrow(NAN), 0x7F);
  assert_int_equal(format->narrow(-NAN), 0x7F);
}

static void every_float8_widens_exactly(void **state) {
  (void)state;
  assert_widens(&E4M3);
  assert_widens(&E5M2);
  assert_true(isinf(float_of_e5m2(0x7C)));
}

static void floats_round_to_the_nearest_even_float8_and_saturate(void **state) {
  (void)state;
  assert_narrows(&E4M3);
  assert_narrows(&E5M2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_float8_widens_exactly),
      cmocka_unit_test(floats_round_to_the_nearest_even_float8_and_saturate),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
