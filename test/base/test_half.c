/* test_half.c: compares the conversions between half precision and float with the definitions of
 * the formats: every half, and the roundings around it.
 */
#include "base/half.h"
#include "child.h"
#include "half_reference.h"

enum { HALVES = 1 << 16 };

static void every_f16_converts_to_float_exactly(void **state) {
  (void)state;
  for (uint32_t bits = 0; bits < HALVES; bits++)
    if (!same_number(float_of_half((uint16_t)bits), reference_value(F16, (uint16_t)bits)))
      fail_msg("0x%04x became %a", bits, float_of_half((uint16_t)bits));
}

static void every_bf16_converts_to_float_exactly(void **state) {
  (void)state;
  for (uint32_t bits = 0; bits < HALVES; bits++)
    if (!same_number(float_of_bfloat16((uint16_t)bits), reference_value(BF16, (uint16_t)bits)))
      fail_msg("0x%04x became %a", bits, float_of_bfloat16((uint16_t)bits));
}

static void assert_rounds(half_format format, uint16_t (*convert)(float), float value) {
  uint16_t bits = convert(value);
  if (!same_number(reference_value(format, bits), reference_rounded(format, value)))
    fail_msg("%a became 0x%04x, expected %a", value, bits, reference_rounded(format, value));
}

/* Tests all floats with one of the 2^19 leading bit patterns and the extreme trailing bits: every
 * half, every tie between two halves, and the neighbors of each. */
static void assert_all_round(half_format format, uint16_t (*convert)(float)) {
  for (uint32_t lead = 0; lead < 1u << 19; lead++) {
    assert_rounds(format, convert, float_of_bits(lead << 13));
    assert_rounds(format, convert, float_of_bits(lead << 13 | 1));
    assert_rounds(format, convert, float_of_bits(lead << 13 | 0x0fff));
    assert_rounds(format, convert, float_of_bits(lead << 13 | 0x1000));
    assert_rounds(format, convert, float_of_bits(lead << 13 | 0x1001));
    assert_rounds(format, convert, float_of_bits(lead << 13 | 0x1fff));
  }
}

static void floats_round_to_the_nearest_even_f16(void **state) {
  (void)state;
  assert_all_round(F16, half_of_float);
}

static void floats_round_to_the_nearest_even_bf16(void **state) {
  (void)state;
  assert_all_round(BF16, bfloat16_of_float);
}

static void limits_of_f16_are_where_ieee_754_puts_them(void **state) {
  (void)state;
  assert_int_equal(half_of_float(65504.0f), 0x7bff); /* the largest */
  assert_int_equal(half_of_float(0x1.ffdffep15f), 0x7bff);
  assert_int_equal(half_of_float(65520.0f),
                   0x7c00); /* half way to 2^16; the even neighbor is above */
  assert_int_equal(half_of_float(0x1p-24f), 0x0001); /* the smallest */
  assert_int_equal(half_of_float(0x1p-25f), 0x0000); /* half of it; the even neighbor is 0 */
  assert_int_equal(half_of_float(0x1.000002p-25f), 0x0001);
  assert_int_equal(half_of_float(-0.0f), 0x8000);
}

static void nan_keeps_its_sign_and_the_top_of_its_payload(void **state) {
  (void)state;
  assert_int_equal(half_of_float(float_of_bits(0x7f800001)), 0x7e00);
  assert_int_equal(half_of_float(float_of_bits(0xff802001)), 0xfe01);
  assert_int_equal(half_of_float(float_of_bits(0xffffffff)), 0xffff);
  assert_int_equal(bfloat16_of_float(float_of_bits(0x7f800001)), 0x7fc0);
  assert_int_equal(bfloat16_of_float(float_of_bits(0xff810001)), 0xffc1);
  assert_int_equal(bfloat16_of_float(float_of_bits(0xffffffff)), 0xffff);
}

static void cuda_narrows_the_same_except_for_nan(void **state) {
  (void)state;
  for (uint32_t lead = 0; lead < 1u << 19; lead++)
    for (uint32_t rest = 0; rest < 1u << 13; rest += 0x0fff) {
      float value = float_of_bits(lead << 13 | rest);
      assert_int_equal(cuda_half_of_float(value), isnan(value) ? 0x7fff : half_of_float(value));
      assert_int_equal(cuda_bfloat16_of_float(value),
                       isnan(value) ? 0x7fff : bfloat16_of_float(value));
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_f16_converts_to_float_exactly),
      cmocka_unit_test(every_bf16_converts_to_float_exactly),
      cmocka_unit_test(floats_round_to_the_nearest_even_f16),
      cmocka_unit_test(floats_round_to_the_nearest_even_bf16),
      cmocka_unit_test(limits_of_f16_are_where_ieee_754_puts_them),
      cmocka_unit_test(nan_keeps_its_sign_and_the_top_of_its_payload),
      cmocka_unit_test(cuda_narrows_the_same_except_for_nan),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
