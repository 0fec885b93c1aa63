/* test_large.c: tensors that exceed 32-bit indices: their number of words, and their numbers.
 *
 * Counting words needs no memory. Numbers are tested with few elements that lie far apart, in
 * reserved address space that is never touched in between.
 */
#include "check.h"

#include <string.h>
#include <sys/mman.h>

static const int64_t one = 1;

static openreg_output line(openreg_type type, const int64_t *n) {
  return (openreg_output){NULL, type, 1, n, &one};
}

static void a_tensor_that_just_fits_takes_the_words_of_one_part(void **state) {
  (void)state;
  int64_t n = INT64_C(1) << 29;
  openreg_output output = line(OPENREG_FLOAT32, &n);
  assert_int_equal(openreg_uniform_words(&output, h100), reference_increment((uint64_t)n, h100, 4));
  n = INT32_MAX;
  output = line(OPENREG_BOOL, &n);
  assert_int_equal(openreg_bernoulli_words(&output, h100),
                   reference_increment((uint64_t)n, h100, 4));
}

static void words_of_halves_are_added_to_those_of_the_whole(void **state) {
  (void)state;
  const int64_t n = (INT64_C(1) << 29) + 1;
  const uint64_t half = UINT64_C(1) << 28;
  const openreg_output output = line(OPENREG_FLOAT32, &n);
  const uint64_t expected = reference_increment(2 * half + 1, h100, 4) +
                            reference_increment(half, h100, 4) +
                            reference_increment(half + 1, h100, 4);
  assert_int_equal(openreg_uniform_words(&output, h100), expected);
  assert_int_equal(openreg_normal_words(&output, h100), expected);
  assert_int_equal(openreg_exponential_words(&output, h100), expected);
}

/* 2^33 numbers of 8 bytes; parts of 2^28 just fit. */
static void words_of_many_parts_are_summed(void **state) {
  (void)state;
  const int64_t n = INT64_C(1) << 33;
  const openreg_output doubles = line(OPENREG_FLOAT64, &n);
  const uint64_t whole = reference_increment((uint64_t)n, h100, 2);
  const uint64_t part = reference_increment(UINT64_C(1) << 28, h100, 2);
  assert_int_equal(openreg_normal_words(&doubles, h100), whole + 32 * part);
  const openreg_output integers = line(OPENREG_INT64, &n);
  assert_int_equal(openreg_random_words(&integers, h100, OPENREG_RANDOM_FROM_TO, UINT64_C(1) << 28),
                   whole + 32 * part);
}

static void words_of_a_large_permutation_include_those_of_its_parts(void **state) {
  (void)state;
  const uint64_t n = UINT64_C(1) << 29, half = n / 2;
  assert_int_equal(openreg_randperm_words(n, h100),
                   reference_increment(n, h100, 2) + 2 * reference_increment(half, h100, 2) + n);
}

/* Rows that lie 2^31 - 1 bytes apart. The whole tensor takes 4 words that are not used, then each
 * row takes 4. The two rows that stay together at first and are split later take none together. */
static void parts_take_words_one_after_the_other(void **state) {
  (void)state;
  enum { ROWS = 3, COLUMNS = 5 };
  const int64_t far = INT32_MAX;
  const size_t bytes = (ROWS - 1) * (size_t)far + COLUMNS;
  uint8_t *memory =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  assert_ptr_not_equal(memory, MAP_FAILED);
  const int64_t sizes[] = {ROWS, COLUMNS}, strides[] = {far, 1};
  const openreg_output output = {memory, OPENREG_UINT8, 2, sizes, strides};
  for (size_t row = 0; row < ROWS; row++)
    memset(memory + row * (size_t)far, PATTERN, COLUMNS);
  assert_int_equal(openreg_random_words(&output, h100, OPENREG_RANDOM_FROM_TO, 100), 4 + ROWS * 4);
  openreg_random(&output, openreg_whole, (openreg_philox){8, 100}, h100, OPENREG_RANDOM_FROM_TO,
                 100, 0);
  for (size_t row = 0; row < ROWS; row++) {
    for (uint64_t i = 0; i < COLUMNS; i++) {
      const openreg_philox philox = {8, 104 + 4 * row};
      const reference_draw draw = reference_draw_of(i, COLUMNS, philox, h100, 4);
      assert_int_equal(memory[row * (size_t)far + i], reference_word(&draw, 4) % 100);
    }
  }
  munmap(memory, bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_tensor_that_just_fits_takes_the_words_of_one_part),
      cmocka_unit_test(words_of_halves_are_added_to_those_of_the_whole),
      cmocka_unit_test(words_of_many_parts_are_summed),
      cmocka_unit_test(words_of_a_large_permutation_include_those_of_its_parts),
      cmocka_unit_test(parts_take_words_one_after_the_other),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
