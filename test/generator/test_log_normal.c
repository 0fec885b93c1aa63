/* test_log_normal.c: log-normal numbers. */
#include "fill.h"

#include <math.h>

static uint64_t words(const operation *operation, const openreg_output *output) {
  return openreg_log_normal_words(output, operation->grid);
}

static void run(const operation *operation, const openreg_output *output) {
  openreg_log_normal(output, openreg_whole, operation->philox, operation->grid, operation->a,
                     operation->b);
}

static double expected(const operation *operation, const reference_draw *draw) {
  const double z = reference_normal(draw, operation->type == OPENREG_FLOAT64);
  return exp(z * operation->b + operation->a);
}

/* Half a last place of the type, and the exponential's error for a normal number with an error of
 * 2e-6. */
static operation log_normal(openreg_type type, double place, double mean, double deviation) {
  const bool in_double = type == OPENREG_FLOAT64;
  return (operation){.type = type,
                     .philox = {17, 16},
                     .grid = tiny,
                     .results_per_call = in_double ? 2 : 4,
                     .a = mean,
                     .b = deviation,
                     .tolerance = place + (in_double ? 2e-14 : 5e-6),
                     .words = words,
                     .run = run,
                     .expected = expected};
}

static void check(openreg_type type, double place) {
  operation operation = log_normal(type, place, 0, 1);
  fill_check_all_shapes(&operation);
  operation = log_normal(type, place, -0.5, 0.25);
  fill_check_contiguous(&operation, 5000);
  operation = log_normal(type, place, 1, 2);
  fill_check_contiguous(&operation, 5000);
}

static void every_type_gives_each_element_its_number(void **state) {
  (void)state;
  check(OPENREG_FLOAT16, 0x1p-11);
  check(OPENREG_BFLOAT16, 0x1p-8);
  check(OPENREG_FLOAT32, 0);
  check(OPENREG_FLOAT64, 0);
}

static void no_deviation_gives_the_exponential_of_the_mean(void **state) {
  (void)state;
  float value = 0;
  const openreg_output output = {&value, OPENREG_FLOAT32, 0, NULL, NULL};
  openreg_log_normal(&output, openreg_whole, (openreg_philox){0, 0}, h100, 2, 0);
  assert_float_equal(value, 7.3890561f, 1e-5f);
}

/* 2^17 is beyond float16. */
static void numbers_beyond_the_type_are_infinite(void **state) {
  (void)state;
  uint16_t value = 0;
  const openreg_output output = {&value, OPENREG_FLOAT16, 0, NULL, NULL};
  openreg_log_normal(&output, openreg_whole, (openreg_philox){0, 0}, h100, 12, 0);
  assert_true(isinf(reference_element(OPENREG_FLOAT16, &value, 0)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_type_gives_each_element_its_number),
      cmocka_unit_test(no_deviation_gives_the_exponential_of_the_mean),
      cmocka_unit_test(numbers_beyond_the_type_are_infinite),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
