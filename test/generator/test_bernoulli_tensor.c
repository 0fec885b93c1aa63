/* test_bernoulli_tensor.c: bernoulli with a probability per element. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float uniform_of(uint64_t i, openreg_philox philox) {
  uint32_t words[4];
  reference_philox(philox.seed, i / 4, philox.offset / 4, words);
  return reference_uniform_of_word(words[i % 4]);
}

static double probability_of(uint64_t i) {
  return (double)(i * 37 % 101) / 100.0;
}

/* Row-major element i lies at `place`, for sizes `rows` x `columns` and the given strides. */
static void check(openreg_type type, int64_t rows, int64_t columns, int64_t row_stride,
                  int64_t column_stride) {
  const openreg_philox philox = {21, 40};
  const uint64_t n = (uint64_t)(rows * columns);
  const uint64_t length = (uint64_t)((rows - 1) * row_stride + (columns - 1) * column_stride) + 9;
  const size_t bytes = openreg_type_bytes(type);
  float *floats = malloc(n * sizeof *floats);
  double *doubles = malloc(n * sizeof *doubles);
  char *memory = malloc(length * bytes);
  assert_true(floats && doubles && memory);
  memset(memory, PATTERN, length * bytes);
  for (uint64_t i = 0; i < n; i++) {
    doubles[i] = probability_of(i);
    floats[i] = (float)doubles[i];
  }
  const int64_t sizes[] = {rows, columns}, strides[] = {row_stride, column_stride};
  const openreg_output output = {memory, type, 2, sizes, strides};
  assert_int_equal(openreg_bernoulli_tensor_words(&output), 12);
  openreg_bernoulli_tensor(&output, openreg_whole, philox,
                           type == OPENREG_FLOAT64 ? (void *)doubles : (void *)floats);
  for (uint64_t i = 0; i < n; i++) {
    const uint64_t place = i / (uint64_t)columns * (uint64_t)row_stride +
                           i % (uint64_t)columns * (uint64_t)column_stride;
    const double p = type == OPENREG_FLOAT64 ? doubles[i] : (double)floats[i];
    assert_true(reference_element(type, memory, place) == ((double)uniform_of(i, philox) <= p));
    memset(memory + place * bytes, PATTERN, bytes);
  }
  for (uint64_t place = 0; place < length; place++)
    assert_true(reference_is_untouched(type, memory, place, PATTERN));
  free(memory);
  free(doubles);
  free(floats);
}

static void four_neighbours_share_a_subsequence_in_every_type(void **state) {
  (void)state;
  for (int type = OPENREG_UINT8; type <= OPENREG_FLOAT64; type++) {
    for (int64_t n = 1; n < 10; n++)
      check((openreg_type)type, 1, n, n, 1);
    check((openreg_type)type, 1, 5001, 5001, 1);
  }
}

static void elements_are_counted_in_row_major_order(void **state) {
  (void)state;
  check(OPENREG_FLOAT32, 40, 70, 1, 40);
  check(OPENREG_FLOAT64, 40, 70, 1, 40);
  check(OPENREG_BOOL, 13, 200, 401, 2);
}

static void probability_equal_to_the_uniform_gives_one(void **state) {
  (void)state;
  const openreg_philox philox = {0, 0};
  const float u = uniform_of(0, philox);
  const float probabilities[] = {u, nextafterf(u, 0)};
  const double expected[] = {1, 0};
  for (int i = 0; i < 2; i++) {
    float value = NAN;
    const openreg_output output = {&value, OPENREG_FLOAT32, 0, NULL, NULL};
    openreg_bernoulli_tensor(&output, openreg_whole, philox, &probabilities[i]);
    assert_true((double)value == expected[i]);
  }
}

/* A double output compares a float uniform with a double probability. */
static void double_probabilities_are_not_rounded(void **state) {
  (void)state;
  const openreg_philox philox = {0, 0};
  const double p = nextafter((double)uniform_of(0, philox), 0);
  double value = NAN;
  const openreg_output output = {&value, OPENREG_FLOAT64, 0, NULL, NULL};
  openreg_bernoulli_tensor(&output, openreg_whole, philox, &p);
  assert_true(value == 0);
}

static void zero_elements_take_no_words(void **state) {
  (void)state;
  const int64_t sizes[] = {3, 0}, strides[] = {1, 1};
  float value = 7;
  const openreg_output output = {&value, OPENREG_FLOAT32, 2, sizes, strides};
  assert_int_equal(openreg_bernoulli_tensor_words(&output), 0);
  openreg_bernoulli_tensor(&output, openreg_whole, (openreg_philox){0, 0}, NULL);
  assert_true(value == 7);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(four_neighbours_share_a_subsequence_in_every_type),
      cmocka_unit_test(elements_are_counted_in_row_major_order),
      cmocka_unit_test(probability_equal_to_the_uniform_gives_one),
      cmocka_unit_test(double_probabilities_are_not_rounded),
      cmocka_unit_test(zero_elements_take_no_words),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
