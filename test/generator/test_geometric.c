/* test_geometric.c: the number of trials up to the first success. */
#include "fill.h"

#include <math.h>

static uint64_t words(const operation *operation, const openreg_output *output) {
  return openreg_geometric_words(output, operation->grid);
}

static void run(const operation *operation, const openreg_output *output) {
  openreg_geometric(output, openreg_whole, operation->philox, operation->grid, operation->a);
}

static double expected(const operation *operation, const reference_draw *draw) {
  const bool in_double = operation->type == OPENREG_FLOAT64;
  const double u = reference_uniform(draw, in_double);
  const double failure = in_double ? 1 - operation->a : (double)(1.0f - (float)operation->a);
  const double trials = ceil(log(u) / log(failure));
  if (operation->type == OPENREG_BOOL)
    return trials != 0;
  return reference_round(operation->type, trials);
}

static operation geometric(openreg_type type, double p) {
  return (operation){.type = type,
                     .philox = {29, 16},
                     .grid = tiny,
                     .results_per_call = type == OPENREG_FLOAT64 ? 2 : 4,
                     .a = p,
                     .words = words,
                     .run = run,
                     .expected = expected};
}

static void every_type_gives_each_element_its_number(void **state) {
  (void)state;
  for (int type = OPENREG_UINT8; type <= OPENREG_FLOAT64; type++) {
    operation operation = geometric((openreg_type)type, 0.3);
    fill_check_all_shapes(&operation);
    operation = geometric((openreg_type)type, 0.9);
    fill_check_contiguous(&operation, 5000);
  }
}

/* Thousands of trials: half types round them, and float logarithms may be one trial off. */
static void small_probabilities_give_large_numbers(void **state) {
  (void)state;
  const openreg_type types[] = {OPENREG_FLOAT16, OPENREG_BFLOAT16, OPENREG_FLOAT32, OPENREG_FLOAT64,
                                OPENREG_INT64};
  for (size_t t = 0; t < LENGTH(types); t++) {
    operation operation = geometric(types[t], 1.0 / 1024);
    operation.tolerance = 1e-3;
    fill_check_contiguous(&operation, 3000);
  }
}

/* Found by search: the first block of subsequence 0 of seed 0 that starts with a uniform of 1. */
static void uniform_of_one_gives_zero(void **state) {
  (void)state;
  float value = 1;
  const openreg_output output = {&value, OPENREG_FLOAT32, 0, NULL, NULL};
  openreg_geometric(&output, openreg_whole, (openreg_philox){0, 4 * UINT64_C(38471471)}, h100, 0.5);
  assert_true(value == 0);
}

static void a_probability_that_rounds_to_zero_gives_the_lowest_value(void **state) {
  (void)state;
  float value = 0;
  const openreg_output floats = {&value, OPENREG_FLOAT32, 0, NULL, NULL};
  openreg_geometric(&floats, openreg_whole, (openreg_philox){0, 0}, h100, 1e-9);
  assert_true(isinf(value) && value < 0);
  int64_t integer = 0;
  const openreg_output integers = {&integer, OPENREG_INT64, 0, NULL, NULL};
  openreg_geometric(&integers, openreg_whole, (openreg_philox){0, 0}, h100, 1e-9);
  assert_true(integer == INT64_MIN);
  double precise = 0;
  const openreg_output doubles = {&precise, OPENREG_FLOAT64, 0, NULL, NULL};
  openreg_geometric(&doubles, openreg_whole, (openreg_philox){0, 0}, h100, 1e-9);
  assert_true(precise > 1e7 && precise < 1e9);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_type_gives_each_element_its_number),
      cmocka_unit_test(small_probabilities_give_large_numbers),
      cmocka_unit_test(uniform_of_one_gives_zero),
      cmocka_unit_test(a_probability_that_rounds_to_zero_gives_the_lowest_value),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
