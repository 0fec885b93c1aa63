/* test_dropout.c: the forward kernel of native_dropout, for every vector width and type. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const openreg_type floating[] = {OPENREG_FLOAT16, OPENREG_BFLOAT16, OPENREG_FLOAT32,
                                        OPENREG_FLOAT64};

/* The table of widths: the word, block and subsequence of element i. */
static float uniform_of(uint64_t i, uint64_t n, int width, openreg_philox philox,
                        openreg_grid grid) {
  const uint64_t threads = reference_threads(n, grid), v = (uint64_t)width, b = philox.offset / 4;
  const uint64_t s = i / v % threads, call = i / v / threads;
  uint32_t words[4];
  if (width == 1)
    reference_philox(philox.seed, i % threads, b + i / threads / 4, words);
  else if (width == 8)
    reference_philox(philox.seed, s, b + 2 * call + i % 8 / 4, words);
  else
    reference_philox(philox.seed, s, b + call, words);
  const uint64_t lane = width == 1 ? i / threads % 4 : width == 2 ? i % 2 : i % 4;
  return reference_uniform_of_word(words[lane]);
}

static double expected_of(openreg_type type, double x, bool kept, double p) {
  const double keep = 1 - p;
  if (type == OPENREG_FLOAT64)
    return x * kept * (1.0 / keep);
  const float scale = (float)(1.0 / (double)(float)keep);
  return reference_round(type, (double)((float)x * (float)kept * scale));
}

/* Returns x of a type, made of small integers that all types hold. */
static void *make_x(openreg_type type, uint64_t n) {
  static const uint16_t half[] = {0xC000, 0xBC00, 0, 0x3C00, 0x4200};
  static const uint16_t bfloat16[] = {0xC000, 0xBF80, 0, 0x3F80, 0x4040};
  static const float value[] = {-2, -1, 0, 1, 3};
  void *x = malloc(n * openreg_type_bytes(type) + 1);
  assert_non_null(x);
  for (uint64_t i = 0; i < n; i++) {
    if (type == OPENREG_FLOAT16)
      ((uint16_t *)x)[i] = half[i % 5];
    else if (type == OPENREG_BFLOAT16)
      ((uint16_t *)x)[i] = bfloat16[i % 5];
    else if (type == OPENREG_FLOAT32)
      ((float *)x)[i] = value[i % 5];
    else
      ((double *)x)[i] = (double)value[i % 5];
  }
  return x;
}

static void check(openreg_type type, uint64_t n, int width, double p) {
  const openreg_philox philox = {5, 24};
  void *x = make_x(type, n);
  void *result = malloc(n * openreg_type_bytes(type) + 1);
  bool *mask = malloc(n + 1);
  assert_true(result && mask);
  memset(result, PATTERN, n * openreg_type_bytes(type) + 1);
  memset(mask, PATTERN, n + 1);
  openreg_dropout(type, n, width, x, result, mask, openreg_whole, philox, tiny, p);
  const double keep = type == OPENREG_FLOAT64 ? 1 - p : (double)(float)(1 - p);
  for (uint64_t i = 0; i < n; i++) {
    const bool kept = (double)uniform_of(i, n, width, philox, tiny) < keep;
    const double expected = expected_of(type, reference_element(type, x, i), kept, p);
    assert_int_equal(((const uint8_t *)mask)[i], kept);
    assert_true(reference_element(type, result, i) == expected);
  }
  assert_int_equal(((const uint8_t *)mask)[n], PATTERN);
  assert_int_equal(((const uint8_t *)result)[n * openreg_type_bytes(type)], PATTERN);
  free(mask);
  free(result);
  free(x);
}

static void each_width_gives_each_element_its_number(void **state) {
  (void)state;
  const uint64_t lengths[] = {8, 16, 1024, 2056, 8192, 20000};
  for (size_t t = 0; t < LENGTH(floating); t++) {
    const int widest = (int)(16 / openreg_type_bytes(floating[t]));
    for (int width = 1; width <= widest; width *= 2) {
      for (size_t i = 0; i < LENGTH(lengths); i++)
        check(floating[t], lengths[i], width, 0.25);
    }
  }
}

static void odd_lengths_go_element_by_element(void **state) {
  (void)state;
  const uint64_t lengths[] = {1, 5, 255, 257, 1025, 4097, 9999};
  for (size_t t = 0; t < LENGTH(floating); t++) {
    for (size_t i = 0; i < LENGTH(lengths); i++)
      check(floating[t], lengths[i], 1, 0.9);
  }
}

static void probability_zero_keeps_all_but_a_uniform_of_one(void **state) {
  (void)state;
  check(OPENREG_FLOAT32, 4096, 4, 0);
  check(OPENREG_FLOAT64, 4096, 2, 0);
}

static void scale_is_one_over_the_rounded_keep_probability(void **state) {
  (void)state;
  for (int p = 1; p < 50; p++) {
    check(OPENREG_FLOAT32, 40, 4, p / 50.0);
    check(OPENREG_FLOAT64, 40, 2, p / 50.0);
  }
}

/* Strict: a uniform that equals the keep probability drops the element. */
static void uniform_must_be_less_than_the_keep_probability(void **state) {
  (void)state;
  const openreg_philox philox = {0, 0};
  const float x[4] = {1, 1, 1, 1}, u = uniform_of(0, 4, 4, philox, h100);
  const float keeps[] = {u, nextafterf(u, 1)};
  for (int i = 0; i < 2; i++) {
    float result[4];
    bool mask[4];
    openreg_dropout(OPENREG_FLOAT32, 4, 4, x, result, mask, openreg_whole, philox, h100,
                    1 - (double)keeps[i]);
    assert_int_equal(mask[0], i);
  }
}

static void no_elements_write_nothing(void **state) {
  (void)state;
  check(OPENREG_FLOAT32, 0, 1, 0.5);
  check(OPENREG_FLOAT16, 0, 8, 0.5);
}

/* 0 times infinity: the mask multiplies, it does not select. */
static void dropped_infinity_is_not_a_number(void **state) {
  (void)state;
  const float x[2] = {INFINITY, -1};
  float result[2];
  bool mask[2];
  openreg_dropout(OPENREG_FLOAT32, 2, 2, x, result, mask, openreg_whole, (openreg_philox){0, 0},
                  h100, 0.999);
  assert_false(mask[0] || mask[1]);
  assert_true(isnan(result[0]));
  assert_true(result[1] == 0 && signbit(result[1]));
}

static void width_is_limited_to_16_bytes(void **state) {
  (void)state;
  assert_int_equal(openreg_dropout_vector_width(OPENREG_FLOAT16, 64, 0, true), 8);
  assert_int_equal(openreg_dropout_vector_width(OPENREG_BFLOAT16, 64, 0, true), 8);
  assert_int_equal(openreg_dropout_vector_width(OPENREG_FLOAT32, 64, 0, true), 4);
  assert_int_equal(openreg_dropout_vector_width(OPENREG_FLOAT64, 64, 0, true), 2);
}

static void width_divides_the_number_of_elements(void **state) {
  (void)state;
  assert_int_equal(openreg_dropout_vector_width(OPENREG_FLOAT16, 12, 0, true), 4);
  assert_int_equal(openreg_dropout_vector_width(OPENREG_FLOAT32, 6, 0, true), 2);
  assert_int_equal(openreg_dropout_vector_width(OPENREG_FLOAT64, 5, 0, true), 1);
}

static void width_follows_the_alignment_of_the_address(void **state) {
  (void)state;
  assert_int_equal(openreg_dropout_vector_width(OPENREG_FLOAT16, 64, 8, true), 4);
  assert_int_equal(openreg_dropout_vector_width(OPENREG_FLOAT32, 64, 512 + 8, true), 2);
  assert_int_equal(openreg_dropout_vector_width(OPENREG_FLOAT32, 64, 4, true), 1);
  assert_int_equal(openreg_dropout_vector_width(OPENREG_FLOAT64, 64, 8, true), 1);
}

static void width_is_one_for_what_is_not_dense(void **state) {
  (void)state;
  assert_int_equal(openreg_dropout_vector_width(OPENREG_FLOAT32, 64, 0, false), 1);
}

static void words_are_those_of_four_results_a_call(void **state) {
  (void)state;
  const uint64_t lengths[] = {1, 256, 1024, 4096, 4097, 100000};
  assert_int_equal(openreg_dropout_words(0, tiny), 0);
  for (size_t i = 0; i < LENGTH(lengths); i++)
    assert_int_equal(openreg_dropout_words(lengths[i], tiny),
                     reference_increment(lengths[i], tiny, 4));
  assert_int_equal(openreg_dropout_words(UINT64_C(1) << 33, h100),
                   reference_increment(UINT64_C(1) << 33, h100, 4));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_width_gives_each_element_its_number),
      cmocka_unit_test(odd_lengths_go_element_by_element),
      cmocka_unit_test(probability_zero_keeps_all_but_a_uniform_of_one),
      cmocka_unit_test(scale_is_one_over_the_rounded_keep_probability),
      cmocka_unit_test(uniform_must_be_less_than_the_keep_probability),
      cmocka_unit_test(no_elements_write_nothing),
      cmocka_unit_test(dropped_infinity_is_not_a_number),
      cmocka_unit_test(width_is_limited_to_16_bytes),
      cmocka_unit_test(width_divides_the_number_of_elements),
      cmocka_unit_test(width_follows_the_alignment_of_the_address),
      cmocka_unit_test(width_is_one_for_what_is_not_dense),
      cmocka_unit_test(words_are_those_of_four_results_a_call),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
