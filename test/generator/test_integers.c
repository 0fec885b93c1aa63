/* test_integers.c: the three forms of random_, every type, each element compared. */
#include "fill.h"

#include <math.h>
#include <string.h>

static uint64_t random_words(const operation *operation, const openreg_output *output) {
  return openreg_random_words(output, operation->grid, operation->form, operation->range);
}

static void random_run(const operation *operation, const openreg_output *output) {
  openreg_random(output, openreg_whole, operation->philox, operation->grid, operation->form,
                 operation->range, operation->base);
}

/* Converts a 64-bit integer to a type. Doubles compare exactly what fits them; the 64-bit types
 * have their own tests. */
static double as_type(openreg_type type, int64_t value) {
  switch (type) {
  case OPENREG_UINT8:
    return (uint8_t)value;
  case OPENREG_INT8:
    return (int8_t)value;
  case OPENREG_INT16:
    return (int16_t)value;
  case OPENREG_INT32:
    return (int32_t)value;
  case OPENREG_INT64:
    return (double)value;
  case OPENREG_UINT16:
    return (uint16_t)value;
  case OPENREG_UINT32:
    return (uint32_t)value;
  case OPENREG_UINT64:
    return (double)(uint64_t)value;
  case OPENREG_BOOL:
    return value != 0;
  case OPENREG_FLOAT16:
  case OPENREG_BFLOAT16:
    return reference_round(type, (double)(float)value);
  case OPENREG_FLOAT32:
    return (double)(float)value;
  case OPENREG_FLOAT64:
    return (double)value;
  }
  return NAN;
}

static double from_to_expected(const operation *operation, const reference_draw *draw) {
  const uint64_t word = reference_word(draw, operation->results_per_call);
  return as_type(operation->type, (int64_t)(word % operation->range + (uint64_t)operation->base));
}

static operation from_to(openreg_type type, int results_per_call, uint64_t range, int64_t base) {
  return (operation){.type = type,
                     .philox = {1234, 16},
                     .grid = tiny,
                     .results_per_call = results_per_call,
                     .form = OPENREG_RANDOM_FROM_TO,
                     .range = range,
                     .base = base,
                     .words = random_words,
                     .run = random_run,
                     .expected = from_to_expected};
}

static void ranges_below_2_28_take_32_bit_words_in_every_type(void **state) {
  (void)state;
  for (int type = OPENREG_UINT8; type <= OPENREG_FLOAT64; type++) {
    operation operation = from_to((openreg_type)type, 4, 100, -3);
    fill_check_all_shapes(&operation);
    operation = from_to((openreg_type)type, 4, (UINT64_C(1) << 28) - 1, 0);
    fill_check_contiguous(&operation, 5000);
    operation = from_to((openreg_type)type, 4, 1, 1);
    fill_check_contiguous(&operation, 10);
  }
}

static void ranges_from_2_28_take_64_bit_words_in_every_type(void **state) {
  (void)state;
  for (int type = OPENREG_UINT8; type <= OPENREG_FLOAT64; type++) {
    operation operation = from_to((openreg_type)type, 2, UINT64_C(1) << 28, -100);
    fill_check_all_shapes(&operation);
    operation = from_to((openreg_type)type, 2, UINT64_MAX, INT64_MIN);
    fill_check_contiguous(&operation, 5000);
  }
}

static double full_expected(const operation *operation, const reference_draw *draw) {
  return as_type(operation->type, (int64_t)reference_word(draw, 2));
}

static void full_range_is_the_whole_word(void **state) {
  (void)state;
  const openreg_type types[] = {OPENREG_INT64, OPENREG_FLOAT64, OPENREG_FLOAT32, OPENREG_BFLOAT16};
  for (size_t t = 0; t < LENGTH(types); t++) {
    operation operation = from_to(types[t], 2, 0, 0);
    operation.form = OPENREG_RANDOM_FULL_64;
    operation.expected = full_expected;
    fill_check_all_shapes(&operation);
  }
}

/* The documented range of `random_()` without arguments: the largest value, or 2^digits. */
static double whole_expected(const operation *operation, const reference_draw *draw) {
  const uint64_t word = reference_word(draw, operation->results_per_call);
  switch (operation->type) {
  case OPENREG_BOOL:
    return (double)(word & 1);
  case OPENREG_UINT8:
    return (double)(word % 256);
  case OPENREG_INT8:
    return (double)(word % 128);
  case OPENREG_INT16:
    return (double)(word % 32768);
  case OPENREG_INT32:
    return (double)(word % 2147483648);
  case OPENREG_INT64:
    return (double)(word % UINT64_C(9223372036854775808));
  case OPENREG_UINT16:
    return (double)(word % 65536);
  case OPENREG_FLOAT16:
    return (double)(word % 2049);
  case OPENREG_BFLOAT16:
    return (double)(word % 257);
  case OPENREG_FLOAT32:
    return (double)(word % 16777217);
  case OPENREG_FLOAT64:
    return (double)(word % 9007199254740993);
  default:
    return (double)word;
  }
}

static void whole_type_is_what_the_type_holds(void **state) {
  (void)state;
  for (int type = OPENREG_UINT8; type <= OPENREG_FLOAT64; type++) {
    const bool wide = type == OPENREG_INT64 || type == OPENREG_UINT64 || type == OPENREG_FLOAT64;
    operation operation = from_to((openreg_type)type, wide ? 2 : 4, 0, 0);
    operation.form = OPENREG_RANDOM_WHOLE_TYPE;
    operation.expected = whole_expected;
    fill_check_all_shapes(&operation);
  }
}

/* Compared as integers: a double would hide the last bits. */
static void bits_of_64_bit_integers_are_exact(void **state) {
  (void)state;
  enum { N = 3000 };
  static int64_t values[N];
  const int64_t n = N, stride = 1, base = INT64_MIN + 12345;
  const uint64_t range = UINT64_MAX - 999;
  const openreg_philox philox = {77, 4};
  const openreg_output output = {values, OPENREG_INT64, 1, &n, &stride};
  memset(values, PATTERN, sizeof values);
  openreg_random(&output, openreg_whole, philox, tiny, OPENREG_RANDOM_FROM_TO, range, base);
  for (uint64_t i = 0; i < N; i++) {
    const reference_draw draw = reference_draw_of(i, N, philox, tiny, 2);
    const uint64_t expected = reference_word(&draw, 2) % range + (uint64_t)base;
    assert_true((uint64_t)values[i] == expected);
  }
  openreg_random(&output, openreg_whole, philox, tiny, OPENREG_RANDOM_FULL_64, 0, 0);
  for (uint64_t i = 0; i < N; i++) {
    const reference_draw draw = reference_draw_of(i, N, philox, tiny, 2);
    assert_true((uint64_t)values[i] == reference_word(&draw, 2));
  }
}

static void range_of_one_gives_the_base(void **state) {
  (void)state;
  int32_t values[5] = {0};
  const int64_t n = 5, stride = 1;
  const openreg_output output = {values, OPENREG_INT32, 1, &n, &stride};
  openreg_random(&output, openreg_whole, (openreg_philox){0, 0}, h100, OPENREG_RANDOM_FROM_TO, 1,
                 -7);
  for (int i = 0; i < 5; i++)
    assert_int_equal(values[i], -7);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranges_below_2_28_take_32_bit_words_in_every_type),
      cmocka_unit_test(ranges_from_2_28_take_64_bit_words_in_every_type),
      cmocka_unit_test(full_range_is_the_whole_word),
      cmocka_unit_test(whole_type_is_what_the_type_holds),
      cmocka_unit_test(bits_of_64_bit_integers_are_exact),
      cmocka_unit_test(range_of_one_gives_the_base),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
