/* test_multinomial.c: samples with replacement. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

static const openreg_type floating[] = {OPENREG_FLOAT16, OPENREG_BFLOAT16, OPENREG_FLOAT32,
                                        OPENREG_FLOAT64};

/* 1/8, 0, 1/2, 3/8, 0 and their sums 1/8, 1/8, 5/8, 1, 1, which every type holds. */
enum { CATEGORIES = 5 };
static const double weights_of_a_row[CATEGORIES] = {0.125, 0, 0.5, 0.375, 0};
static const double sums_of_a_row[CATEGORIES] = {0.125, 0.125, 0.625, 1, 1};

/* The sums reach exactly 1, so this search always finds a category. */
static int64_t first_that_reaches(double u) {
  int64_t category = 0;
  while (sums_of_a_row[category] < u)
    category++;
  return category;
}

static void check(openreg_type type, uint64_t rows, uint64_t samples) {
  const openreg_philox philox = {99, 8};
  uint64_t *weights = malloc(rows * CATEGORIES * sizeof *weights);
  uint64_t *sums = malloc(rows * CATEGORIES * sizeof *sums);
  int64_t *output = malloc((rows * samples + 1) * sizeof *output);
  assert_true(weights && sums && output);
  for (uint64_t i = 0; i < rows * CATEGORIES; i++) {
    reference_put(type, weights, i, weights_of_a_row[i % CATEGORIES]);
    reference_put(type, sums, i, sums_of_a_row[i % CATEGORIES]);
  }
  memset(output, PATTERN, (rows * samples + 1) * sizeof *output);
  openreg_multinomial(output, type, weights, sums, rows, CATEGORIES, samples, philox);
  const uint64_t together = rows > 65535 ? 65535 : rows;
  for (uint64_t row = 0; row < rows; row++) {
    for (uint64_t j = 0; j < samples; j++) {
      uint32_t words[4];
      const uint64_t s = row % together * ((samples + 127) / 128) * 128 + j;
      reference_philox(philox.seed, s, philox.offset / 4 + row / together, words);
      const double u = reference_round(type, (double)reference_uniform_of_word(words[0]));
      assert_int_equal(output[row * samples + j], first_that_reaches(u));
    }
  }
  assert_true(reference_is_untouched(OPENREG_INT64, output, rows * samples, PATTERN));
  free(output);
  free(sums);
  free(weights);
}

static void each_sample_is_the_first_category_that_reaches_its_uniform(void **state) {
  (void)state;
  for (size_t t = 0; t < LENGTH(floating); t++) {
    check(floating[t], 1, 2);
    check(floating[t], 3, 128);
    check(floating[t], 7, 129);
    check(floating[t], 2, 1000);
  }
}

static void rows_beyond_the_height_of_the_grid_take_the_next_call(void **state) {
  (void)state;
  check(OPENREG_FLOAT32, 70000, 2);
}

/* Sums so far below 1 that some uniforms do not reach them, as many small weights can cause by
 * rounding. */
static void uniform_beyond_the_sums_gives_the_last_category_with_a_weight(void **state) {
  (void)state;
  const float weights[] = {1e-6f, 1e-6f, 1e-20f, 0, 0};
  const float sums[] = {1e-6f, 2e-6f, 2e-6f, 2e-6f, 2e-6f};
  int64_t output[50];
  memset(output, PATTERN, sizeof output);
  openreg_multinomial(output, OPENREG_FLOAT32, weights, sums, 1, 5, 50, (openreg_philox){1, 0});
  for (int j = 0; j < 50; j++)
    assert_int_equal(output[j], 2);
}

static void weights_of_zero_leave_the_first_category(void **state) {
  (void)state;
  const double zeros[] = {0, 0, 0};
  int64_t output[4] = {9, 9, 9, 9};
  openreg_multinomial(output, OPENREG_FLOAT64, zeros, zeros, 1, 3, 4, (openreg_philox){1, 0});
  for (int j = 0; j < 4; j++)
    assert_int_equal(output[j], 0);
}

static void words_grow_with_the_rows_beyond_the_height_of_the_grid(void **state) {
  (void)state;
  assert_int_equal(openreg_multinomial_words(1, 5), 4);
  assert_int_equal(openreg_multinomial_words(65535, 100000), 4);
  assert_int_equal(openreg_multinomial_words(65536, 2), 8);
  assert_int_equal(openreg_multinomial_words(3 * 65535 + 1, 2), 16);
}

static void zero_elements_take_no_words(void **state) {
  (void)state;
  int64_t untouched = 5;
  assert_int_equal(openreg_multinomial_words(0, 5), 0);
  assert_int_equal(openreg_multinomial_words(5, 0), 0);
  openreg_multinomial(&untouched, OPENREG_FLOAT32, NULL, NULL, 0, 5, 5, (openreg_philox){1, 0});
  openreg_multinomial(&untouched, OPENREG_FLOAT32, NULL, NULL, 5, 5, 0, (openreg_philox){1, 0});
  assert_int_equal(untouched, 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_sample_is_the_first_category_that_reaches_its_uniform),
      cmocka_unit_test(rows_beyond_the_height_of_the_grid_take_the_next_call),
      cmocka_unit_test(uniform_beyond_the_sums_gives_the_last_category_with_a_weight),
      cmocka_unit_test(weights_of_zero_leave_the_first_category),
      cmocka_unit_test(words_grow_with_the_rows_beyond_the_height_of_the_grid),
      cmocka_unit_test(zero_elements_take_no_words),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
