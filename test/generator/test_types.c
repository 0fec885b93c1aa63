/* test_types.c: conversions between computed values and elements, exhaustively where possible. */
#include "check.h"
#include "base/half.h"
#include "generator/types.h"

#include <math.h>
#include <string.h>

static const openreg_type halves[] = {OPENREG_FLOAT16, OPENREG_BFLOAT16};

static float widen(openreg_type type, uint16_t bits) {
  return type == OPENREG_FLOAT16 ? float_of_half(bits) : float_of_bfloat16(bits);
}

static uint16_t narrow(openreg_type type, float value) {
  return type == OPENREG_FLOAT16 ? cuda_half_of_float(value) : cuda_bfloat16_of_float(value);
}

static uint16_t infinity_of(openreg_type type) {
  return type == OPENREG_FLOAT16 ? 0x7C00 : 0x7F80;
}

static void sizes_are_those_of_c(void **state) {
  (void)state;
  const size_t expected[] = {1, 1, 2, 4, 8, 2, 4, 8, 1, 2, 2, 4, 8};
  for (int type = OPENREG_UINT8; type <= OPENREG_FLOAT64; type++)
    assert_int_equal(openreg_type_bytes((openreg_type)type), expected[type]);
  assert_int_equal(openreg_type_bytes((openreg_type)99), 0);
}

static void every_16_bit_number_widens_to_its_value_and_comes_back(void **state) {
  (void)state;
  for (size_t t = 0; t < LENGTH(halves); t++) {
    for (uint32_t i = 0; i <= UINT16_MAX; i++) {
      const uint16_t bits = (uint16_t)i;
      const double expected = reference_element(halves[t], &bits, 0);
      const float value = widen(halves[t], bits);
      if (isnan(expected)) {
        assert_true(isnan(value));
        assert_int_equal(narrow(halves[t], value), 0x7FFF);
      } else {
        assert_true((double)value == expected);
        assert_int_equal(narrow(halves[t], value), bits);
      }
    }
  }
}

/* Between every two neighbors, including the largest and infinity: the middle rounds to the even
 * one, and a little more or less to the nearer one. Infinity counts as one step above the largest.
 */
static void middles_go_to_even_and_neighbours_of_middles_to_the_nearest(void **state) {
  (void)state;
  for (size_t t = 0; t < LENGTH(halves); t++) {
    const uint16_t infinite = infinity_of(halves[t]);
    for (uint16_t lower = 0; lower < infinite; lower++) {
      const uint16_t upper = (uint16_t)(lower + 1);
      const double low = (double)widen(halves[t], lower);
      const double step = lower == 0 ? (double)widen(halves[t], 1)
                                     : low - (double)widen(halves[t], (uint16_t)(lower - 1));
      const double high = upper == infinite ? low + step : (double)widen(halves[t], upper);
      const float middle = (float)((low + high) / 2);
      assert_int_equal(narrow(halves[t], middle), lower % 2 ? upper : lower);
      assert_int_equal(narrow(halves[t], nextafterf(middle, 0)), lower);
      assert_int_equal(narrow(halves[t], nextafterf(middle, INFINITY)), upper);
      assert_int_equal(narrow(halves[t], -nextafterf(middle, INFINITY)), upper | 0x8000);
    }
  }
}

static void numbers_beyond_the_largest_become_infinite(void **state) {
  (void)state;
  assert_int_equal(cuda_half_of_float(65519.996f), 0x7BFF);
  assert_int_equal(cuda_half_of_float(65520.0f), 0x7C00);
  assert_int_equal(cuda_half_of_float(1e30f), 0x7C00);
  assert_int_equal(cuda_half_of_float(-INFINITY), 0xFC00);
  assert_int_equal(cuda_bfloat16_of_float(3.4e38f), 0x7F80);
  assert_int_equal(cuda_bfloat16_of_float(-INFINITY), 0xFF80);
}

static void floats_are_stored_and_loaded_as_their_type_has_them(void **state) {
  (void)state;
  const openreg_type types[] = {OPENREG_FLOAT16, OPENREG_BFLOAT16, OPENREG_FLOAT32};
  const float values[5] = {1.0f / 3, -2049.0f, 1e-7f, 70000.0f, 0.0f};
  for (size_t t = 0; t < LENGTH(types); t++) {
    uint64_t elements[5];
    float loaded[5], rounded[5] = {1.0f / 3, -2049.0f, 1e-7f, 70000.0f, 0.0f};
    openreg_type_store_floats(types[t], values, 5, elements);
    openreg_type_load_floats(types[t], elements, 5, loaded);
    openreg_type_round_floats(types[t], rounded, 5);
    for (int j = 0; j < 5; j++) {
      const double expected = reference_round(types[t], (double)values[j]);
      assert_true(reference_element(types[t], elements, (uint64_t)j) == expected);
      assert_true((double)loaded[j] == expected);
      assert_true((double)rounded[j] == expected);
      assert_true((double)openreg_type_round_float(types[t], values[j]) == expected);
    }
  }
}

static void reals_are_stored_loaded_and_rounded_as_their_type_has_them(void **state) {
  (void)state;
  const openreg_type types[] = {OPENREG_FLOAT16, OPENREG_BFLOAT16, OPENREG_FLOAT32,
                                OPENREG_FLOAT64};
  const double values[] = {1.0 / 3, -2049, 1e-7, 70000, 0, -1e300};
  for (size_t t = 0; t < LENGTH(types); t++) {
    for (size_t v = 0; v < LENGTH(values); v++) {
      const double single = types[t] == OPENREG_FLOAT64 ? values[v] : (double)(float)values[v];
      const double expected = reference_round(types[t], single);
      double elements[3];
      memset(elements, PATTERN, sizeof elements);
      openreg_type_store_real(types[t], values[v], elements, 1);
      assert_true(reference_is_untouched(types[t], elements, 0, PATTERN));
      assert_true(reference_is_untouched(types[t], elements, 2, PATTERN));
      assert_true(reference_element(types[t], elements, 1) == expected);
      assert_true(openreg_type_load_real(types[t], elements, 1) == expected);
      assert_true(openreg_type_round_real(types[t], values[v]) == expected);
      assert_true(openreg_type_round_computed(types[t], values[v]) == single);
    }
  }
}

static void integers_wrap_to_the_width_of_their_type(void **state) {
  (void)state;
  const int64_t value = INT64_C(0x7EDCBA98F6F5F4F3);
  uint64_t element = 0;
  openreg_type_store_int64s(OPENREG_UINT8, &value, 1, &element);
  assert_true(reference_element(OPENREG_UINT8, &element, 0) == 0xF3);
  assert_true(reference_element(OPENREG_INT8, &element, 0) == 0xF3 - 256);
  openreg_type_store_int64s(OPENREG_INT16, &value, 1, &element);
  assert_true(reference_element(OPENREG_UINT16, &element, 0) == 0xF4F3);
  openreg_type_store_int64s(OPENREG_UINT32, &value, 1, &element);
  assert_true(reference_element(OPENREG_UINT32, &element, 0) == 0xF6F5F4F3);
  openreg_type_store_int64s(OPENREG_UINT64, &value, 1, &element);
  assert_true(element == (uint64_t)value);
}

static void bool_is_whether_the_integer_is_not_zero(void **state) {
  (void)state;
  const int64_t values[4] = {0, 1, 256, -1};
  const uint8_t expected[4] = {0, 1, 1, 1};
  uint8_t elements[4] = {PATTERN, PATTERN, PATTERN, PATTERN};
  openreg_type_store_int64s(OPENREG_BOOL, values, 4, elements);
  assert_memory_equal(elements, expected, 4);
}

/* 2^24 + 2^16 + 1 is a little more than the middle of two bfloat16 numbers. Rounded once it would
 * go up. Float loses the difference, and then the middle rounds down to the even one. */
static void integers_reach_16_bits_through_float(void **state) {
  (void)state;
  const int64_t value = (INT64_C(1) << 24) + (INT64_C(1) << 16) + 1;
  uint16_t element = 0;
  openreg_type_store_int64s(OPENREG_BFLOAT16, &value, 1, &element);
  assert_true(reference_element(OPENREG_BFLOAT16, &element, 0) == ldexp(1.0, 24));
  assert_true(reference_round(OPENREG_BFLOAT16, (double)value) > ldexp(1.0, 24));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sizes_are_those_of_c),
      cmocka_unit_test(every_16_bit_number_widens_to_its_value_and_comes_back),
      cmocka_unit_test(middles_go_to_even_and_neighbours_of_middles_to_the_nearest),
      cmocka_unit_test(numbers_beyond_the_largest_become_infinite),
      cmocka_unit_test(floats_are_stored_and_loaded_as_their_type_has_them),
      cmocka_unit_test(reals_are_stored_loaded_and_rounded_as_their_type_has_them),
      cmocka_unit_test(integers_wrap_to_the_width_of_their_type),
      cmocka_unit_test(bool_is_whether_the_integer_is_not_zero),
      cmocka_unit_test(integers_reach_16_bits_through_float),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
