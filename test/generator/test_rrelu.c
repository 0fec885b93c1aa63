/* test_rrelu.c: the randomized leaky rectifier. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const openreg_type floating[] = {OPENREG_FLOAT16, OPENREG_BFLOAT16, OPENREG_FLOAT32,
                                        OPENREG_FLOAT64};

static double input_of(uint64_t i) {
  return (double)(i * 29 % 41) / 7 - 3; /* one in 41 is 0, half are negative */
}

static void check(openreg_type type, uint64_t n, double lower, double upper) {
  const openreg_philox philox = {31, 12};
  const bool in_double = type == OPENREG_FLOAT64;
  double *x = malloc((n + 1) * sizeof *x);
  double *noise = malloc((n + 1) * sizeof *noise), *result = malloc((n + 1) * sizeof *result);
  assert_true(x && noise && result);
  for (uint64_t i = 0; i < n; i++)
    reference_put(type, x, i, input_of(i));
  memset(noise, PATTERN, (n + 1) * sizeof *noise);
  memset(result, PATTERN, (n + 1) * sizeof *result);
  const int results = in_double ? 2 : 4;
  assert_int_equal(openreg_rrelu_words(type, n, tiny), reference_increment(n, tiny, results));
  openreg_rrelu(type, n, x, noise, result, openreg_whole, philox, tiny, lower, upper);
  for (uint64_t i = 0; i < n; i++) {
    const reference_draw draw = reference_draw_of(i, n, philox, tiny, results);
    const double u = reference_round(type, reference_uniform(&draw, in_double));
    const double slope = reference_round(type, fma(u, upper - lower, lower));
    const double value = reference_element(type, x, i), factor = value <= 0 ? slope : 1;
    assert_true(reference_element(type, noise, i) == factor);
    assert_true(reference_element(type, result, i) == reference_round(type, value * factor));
  }
  assert_true(reference_is_untouched(type, noise, n, PATTERN));
  assert_true(reference_is_untouched(type, result, n, PATTERN));
  free(result);
  free(noise);
  free(x);
}

static void elements_are_those_of_the_grid_in_every_type(void **state) {
  (void)state;
  const uint64_t lengths[] = {1, 255, 257, 1024, 1025, 4097, 10000};
  for (size_t t = 0; t < LENGTH(floating); t++) {
    for (size_t i = 0; i < LENGTH(lengths); i++)
      check(floating[t], lengths[i], 1.0 / 8, 1.0 / 3);
    check(floating[t], 3000, -0.7, 0.9);
    check(floating[t], 300, 0.25, 0.25);
  }
}

static void result_may_be_the_input(void **state) {
  (void)state;
  float apart[300], noise[300], x[300];
  for (uint64_t i = 0; i < 300; i++)
    x[i] = (float)input_of(i);
  openreg_rrelu(OPENREG_FLOAT32, 300, x, noise, apart, openreg_whole, (openreg_philox){5, 4}, h100,
                0.1, 0.3);
  openreg_rrelu(OPENREG_FLOAT32, 300, x, noise, x, openreg_whole, (openreg_philox){5, 4}, h100, 0.1,
                0.3);
  assert_memory_equal(x, apart, sizeof x);
}

static void nan_passes_with_a_noise_of_one(void **state) {
  (void)state;
  const float x = NAN;
  float noise = 0, result = 0;
  openreg_rrelu(OPENREG_FLOAT32, 1, &x, &noise, &result, openreg_whole, (openreg_philox){5, 4},
                h100, 0.1, 0.3);
  assert_true(isnan(result) && noise == 1);
}

static void zero_elements_take_no_words(void **state) {
  (void)state;
  assert_int_equal(openreg_rrelu_words(OPENREG_FLOAT32, 0, h100), 0);
  openreg_rrelu(OPENREG_FLOAT32, 0, NULL, NULL, NULL, openreg_whole, (openreg_philox){5, 4}, h100,
                0.1, 0.3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(elements_are_those_of_the_grid_in_every_type),
      cmocka_unit_test(result_may_be_the_input),
      cmocka_unit_test(nan_passes_with_a_noise_of_one),
      cmocka_unit_test(zero_elements_take_no_words),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
