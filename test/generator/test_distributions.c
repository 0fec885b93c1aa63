/* test_distributions.c: uniform, normal, exponential and bernoulli on the grid: every type, all
 * kinds of shapes, several calls per thread, and each element compared with its formula. */
#include "fill.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const openreg_type floating[] = {OPENREG_FLOAT16, OPENREG_BFLOAT16, OPENREG_FLOAT32,
                                        OPENREG_FLOAT64};

static bool in_double(const operation *operation) {
  return operation->type == OPENREG_FLOAT64;
}

/* ---- uniform --------------------------------------------------------------------------------- */

static uint64_t uniform_words(const operation *operation, const openreg_output *output) {
  return openreg_uniform_words(output, operation->grid);
}

static void uniform_run(const operation *operation, const openreg_output *output) {
  openreg_uniform(output, openreg_whole, operation->philox, operation->grid, operation->a,
                  operation->b);
}

static double uniform_expected(const operation *operation, const reference_draw *draw) {
  const double u = reference_uniform(draw, in_double(operation));
  const double from = reference_round(operation->type, operation->a);
  const double to = reference_round(operation->type, operation->b);
  const double range = reference_round(operation->type, to - from);
  const double value = in_double(operation) ? fma(u, range, from)
                                            : (double)fmaf((float)u, (float)range, (float)from);
  const double rounded = reference_round(operation->type, value);
  return rounded == to ? from : rounded;
}

static operation uniform(openreg_type type, double from, double to) {
  return (operation){.type = type,
                     .philox = {42, 20},
                     .grid = tiny,
                     .results_per_call = type == OPENREG_FLOAT64 ? 2 : 4,
                     .a = from,
                     .b = to,
                     .words = uniform_words,
                     .run = uniform_run,
                     .expected = uniform_expected};
}

static void uniform_gives_each_element_its_number(void **state) {
  (void)state;
  for (size_t t = 0; t < LENGTH(floating); t++) {
    const operation operation = uniform(floating[t], 0, 1);
    fill_check_all_shapes(&operation);
  }
}

static void uniform_rounds_its_bounds_to_the_type(void **state) {
  (void)state;
  for (size_t t = 0; t < LENGTH(floating); t++) {
    operation operation = uniform(floating[t], -1.0 / 3, 1000.1);
    fill_check_contiguous(&operation, 3000);
    operation = uniform(floating[t], 0.7, 0.7);
    fill_check_contiguous(&operation, 10);
    operation = uniform(floating[t], -2, 0);
    fill_check_contiguous(&operation, 3000);
  }
}

/* In half a uniform above 1 - 2^-12 rounds to 1: one in 4096. */
static void uniform_never_gives_its_upper_bound(void **state) {
  (void)state;
  enum { N = 100000 };
  static uint16_t halves[N];
  const int64_t n = N, stride = 1;
  const openreg_output output = {halves, OPENREG_FLOAT16, 1, &n, &stride};
  openreg_uniform(&output, openreg_whole, (openreg_philox){1, 0}, h100, 0, 1);
  int zeros = 0;
  for (uint64_t i = 0; i < N; i++) {
    const double value = reference_element(OPENREG_FLOAT16, halves, i);
    assert_true(value >= 0 && value < 1);
    zeros += value == 0;
  }
  assert_in_range(zeros, 5, 60);
}

/* Found by search: the first block of subsequence 0 of seed 0 whose first uniform is exactly 1. */
static openreg_philox first_uniform_is_one(void) {
  const openreg_philox philox = {0, 4 * UINT64_C(38471471)};
  uint32_t words[4];
  reference_philox(philox.seed, 0, philox.offset / 4, words);
  assert_true(reference_uniform_of_word(words[0]) == 1.0f);
  return philox;
}

static void uniform_of_one_gives_the_lower_bound(void **state) {
  (void)state;
  const openreg_philox at = first_uniform_is_one();
  float value = 0;
  const openreg_output output = {&value, OPENREG_FLOAT32, 0, NULL, NULL};
  openreg_uniform(&output, openreg_whole, at, h100, 3, 5);
  assert_true(value == 3.0f);
  openreg_uniform(&output, openreg_whole, at, h100, 0, 1);
  assert_true(value == 0.0f);
}

/* Between 0 and the smallest double every number rounds to one of the two, half of them to the
 * upper bound. */
static void uniform_double_never_gives_its_upper_bound(void **state) {
  (void)state;
  double values[100];
  const int64_t n = 100, stride = 1;
  const openreg_output output = {values, OPENREG_FLOAT64, 1, &n, &stride};
  memset(values, PATTERN, sizeof values);
  openreg_uniform(&output, openreg_whole, (openreg_philox){2, 0}, h100, 0, 0x1p-1074);
  for (int i = 0; i < 100; i++)
    assert_true(values[i] == 0);
}

/* ---- normal ---------------------------------------------------------------------------------- */

static uint64_t normal_words(const operation *operation, const openreg_output *output) {
  return openreg_normal_words(output, operation->grid);
}

static void normal_run(const operation *operation, const openreg_output *output) {
  openreg_normal(output, openreg_whole, operation->philox, operation->grid, operation->a,
                 operation->b);
}

static double normal_expected(const operation *operation, const reference_draw *draw) {
  return reference_normal(draw, in_double(operation)) * operation->b + operation->a;
}

/* The allowed error of a result: one last place of the type, or the error of the float sine and
 * cosine. */
static double tolerance_of(openreg_type type) {
  switch (type) {
  case OPENREG_FLOAT16:
    return 0x1p-11 + 2e-6;
  case OPENREG_BFLOAT16:
    return 0x1p-8 + 2e-6;
  case OPENREG_FLOAT32:
    return 2e-6;
  default:
    return 4e-15;
  }
}

static void normal_gives_each_element_its_number(void **state) {
  (void)state;
  for (size_t t = 0; t < LENGTH(floating); t++) {
    operation operation = {.type = floating[t],
                           .philox = {7, 8},
                           .grid = tiny,
                           .results_per_call = floating[t] == OPENREG_FLOAT64 ? 2 : 4,
                           .a = 0,
                           .b = 1,
                           .tolerance = tolerance_of(floating[t]),
                           .words = normal_words,
                           .run = normal_run,
                           .expected = normal_expected};
    fill_check_all_shapes(&operation);
    operation.a = 0.5;
    operation.b = 0.25;
    fill_check_contiguous(&operation, 5000);
  }
}

static void normal_of_no_deviation_is_its_mean(void **state) {
  (void)state;
  float values[9];
  const int64_t n = 9, stride = 1;
  const openreg_output output = {values, OPENREG_FLOAT32, 1, &n, &stride};
  memset(values, PATTERN, sizeof values);
  openreg_normal(&output, openreg_whole, (openreg_philox){0, 0}, h100, 3.5, 0);
  for (int i = 0; i < 9; i++)
    assert_true(values[i] == 3.5f);
}

/* ---- exponential ----------------------------------------------------------------------------- */

static uint64_t exponential_words(const operation *operation, const openreg_output *output) {
  return openreg_exponential_words(output, operation->grid);
}

static void exponential_run(const operation *operation, const openreg_output *output) {
  openreg_exponential(output, openreg_whole, operation->philox, operation->grid, operation->a);
}

static double exponential_expected(const operation *operation, const reference_draw *draw) {
  const double u = reference_uniform(draw, in_double(operation));
  const double least = (in_double(operation) ? DBL_EPSILON : (double)FLT_EPSILON) / 2;
  return -(u >= 1 - least ? -least : log(u)) / operation->a;
}

static void exponential_gives_each_element_its_number(void **state) {
  (void)state;
  for (size_t t = 0; t < LENGTH(floating); t++) {
    operation operation = {.type = floating[t],
                           .philox = {3, 4},
                           .grid = tiny,
                           .results_per_call = floating[t] == OPENREG_FLOAT64 ? 2 : 4,
                           .a = 1,
                           .tolerance = tolerance_of(floating[t]),
                           .words = exponential_words,
                           .run = exponential_run,
                           .expected = exponential_expected};
    fill_check_all_shapes(&operation);
    operation.a = 2.5;
    fill_check_contiguous(&operation, 5000);
  }
}

static void exponential_is_never_zero(void **state) {
  (void)state;
  const openreg_philox at = first_uniform_is_one();
  float value = 0;
  const openreg_output output = {&value, OPENREG_FLOAT32, 0, NULL, NULL};
  openreg_exponential(&output, openreg_whole, at, h100, 1);
  assert_true(value == FLT_EPSILON / 2);
}

/* ---- bernoulli ------------------------------------------------------------------------------- */

static uint64_t bernoulli_words(const operation *operation, const openreg_output *output) {
  return openreg_bernoulli_words(output, operation->grid);
}

static void bernoulli_run(const operation *operation, const openreg_output *output) {
  openreg_bernoulli(output, openreg_whole, operation->philox, operation->grid, operation->a);
}

static double bernoulli_expected(const operation *operation, const reference_draw *draw) {
  const double p = in_double(operation) ? operation->a : (double)(float)operation->a;
  return reference_uniform(draw, in_double(operation)) < p;
}

static operation bernoulli(openreg_type type, double p) {
  return (operation){.type = type,
                     .philox = {9, 12},
                     .grid = tiny,
                     .results_per_call = type == OPENREG_FLOAT64 ? 2 : 4,
                     .a = p,
                     .words = bernoulli_words,
                     .run = bernoulli_run,
                     .expected = bernoulli_expected};
}

static void bernoulli_gives_each_element_of_every_type_its_number(void **state) {
  (void)state;
  for (int type = OPENREG_UINT8; type <= OPENREG_FLOAT64; type++) {
    const operation operation = bernoulli((openreg_type)type, 0.3);
    fill_check_all_shapes(&operation);
  }
}

static void bernoulli_of_certainties_is_certain(void **state) {
  (void)state;
  uint8_t values[1000];
  const int64_t n = 1000, stride = 1;
  const openreg_output output = {values, OPENREG_BOOL, 1, &n, &stride};
  memset(values, PATTERN, sizeof values);
  openreg_bernoulli(&output, openreg_whole, (openreg_philox){5, 0}, h100, 0);
  for (int i = 0; i < 1000; i++)
    assert_int_equal(values[i], 0);
  openreg_bernoulli(&output, openreg_whole, (openreg_philox){5, 0}, h100, 1);
  for (int i = 0; i < 1000; i++)
    assert_int_equal(values[i], 1);
}

/* Strict: a uniform that equals the probability gives 0. p is the first uniform of seed 0. */
static void bernoulli_needs_less_than_its_probability(void **state) {
  (void)state;
  uint32_t words[4];
  reference_philox(0, 0, 0, words);
  const float u = reference_uniform_of_word(words[0]);
  uint8_t value = PATTERN;
  const openreg_output output = {&value, OPENREG_UINT8, 0, NULL, NULL};
  openreg_bernoulli(&output, openreg_whole, (openreg_philox){0, 0}, h100, (double)u);
  assert_int_equal(value, 0);
  openreg_bernoulli(&output, openreg_whole, (openreg_philox){0, 0}, h100, (double)nextafterf(u, 1));
  assert_int_equal(value, 1);
}

static void bernoulli_rounds_its_probability_to_float(void **state) {
  (void)state;
  uint32_t words[4];
  reference_philox(0, 0, 0, words);
  const double p = nextafter((double)reference_uniform_of_word(words[0]), 1);
  uint8_t value = PATTERN;
  const openreg_output output = {&value, OPENREG_UINT8, 0, NULL, NULL};
  openreg_bernoulli(&output, openreg_whole, (openreg_philox){0, 0}, h100, p);
  assert_int_equal(value, 0);
}

/* ---- the grid -------------------------------------------------------------------------------- */

static void several_calls_on_real_devices_follow_their_grids(void **state) {
  (void)state;
  const openreg_grid grids[] = {{28, 1536}, {40, 1024}, {1, 256}, {3, 700}};
  for (size_t g = 0; g < LENGTH(grids); g++) {
    operation operation = uniform(OPENREG_FLOAT32, 0, 1);
    operation.grid = grids[g];
    fill_check_contiguous(&operation, 200000);
  }
}

static void seeds_and_offsets_use_all_their_bits(void **state) {
  (void)state;
  operation operation = uniform(OPENREG_FLOAT32, 0, 1);
  operation.philox = (openreg_philox){UINT64_MAX - 5, UINT64_C(0xFFFFFFFFFFFFFFF0)};
  fill_check_contiguous(&operation, 4000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(uniform_gives_each_element_its_number),
      cmocka_unit_test(uniform_rounds_its_bounds_to_the_type),
      cmocka_unit_test(uniform_never_gives_its_upper_bound),
      cmocka_unit_test(uniform_of_one_gives_the_lower_bound),
      cmocka_unit_test(uniform_double_never_gives_its_upper_bound),
      cmocka_unit_test(normal_gives_each_element_its_number),
      cmocka_unit_test(normal_of_no_deviation_is_its_mean),
      cmocka_unit_test(exponential_gives_each_element_its_number),
      cmocka_unit_test(exponential_is_never_zero),
      cmocka_unit_test(bernoulli_gives_each_element_of_every_type_its_number),
      cmocka_unit_test(bernoulli_of_certainties_is_certain),
      cmocka_unit_test(bernoulli_needs_less_than_its_probability),
      cmocka_unit_test(bernoulli_rounds_its_probability_to_float),
      cmocka_unit_test(several_calls_on_real_devices_follow_their_grids),
      cmocka_unit_test(seeds_and_offsets_use_all_their_bits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
