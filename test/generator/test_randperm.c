/* test_randperm.c: permutations, compared with a sort that does not rely on uniform keys. */
#include "check.h"
#include "generator/distributions/randperm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
  int64_t key; /* as compared: signed at full width, else masked */
  int64_t value;
} entry;

static int by_key_then_value(const void *a, const void *b) {
  const entry *left = a, *right = b;
  if (left->key != right->key)
    return left->key < right->key ? -1 : 1;
  return (left->value > right->value) - (left->value < right->value);
}

static int bits_of(uint64_t n) {
  const double x = (double)n;
  const double bits = ceil(log2(x - (6 * x * x + 1) / (12 * log(0.9))));
  return bits > 64 ? 64 : (int)bits;
}

static int64_t key_of(uint64_t i, uint64_t n, openreg_philox philox, openreg_grid grid, int bits) {
  const reference_draw draw = reference_draw_of(i, n, philox, grid, 2);
  const uint64_t word = reference_word(&draw, 2);
  if (bits <= 32) {
    const int32_t key = (int32_t)((int64_t)(word % 4294967295) - 2147483648);
    return bits == 32 ? key : (int64_t)((uint32_t)key & ((1u << bits) - 1));
  }
  const uint64_t key = word % UINT64_MAX - (UINT64_C(1) << 63);
  return (int64_t)(key & ((UINT64_C(1) << bits) - 1));
}

/* Shuffles runs of equal keys with words of the second request; returns the number of runs. */
static int shuffle_runs(entry *entries, uint64_t n, openreg_philox second) {
  int runs = 0;
  for (uint64_t t = 0; t < n; t++) {
    if (t > 0 && entries[t].key == entries[t - 1].key)
      continue;
    uint64_t length = 1;
    while (t + length < n && entries[t + length].key == entries[t].key)
      length++;
    runs += length > 1;
    for (uint64_t j = length - 1, word = 0; j > 0; j--, word++) {
      uint32_t words[4];
      reference_philox(second.seed, t, second.offset / 4 + word / 4, words);
      const uint64_t k = words[word % 4] % (j + 1);
      const int64_t value = entries[t + j].value;
      entries[t + j].value = entries[t + k].value;
      entries[t + k].value = value;
    }
  }
  return runs;
}

static int check_showing(int most_bits, uint64_t n, openreg_philox philox, openreg_grid grid) {
  const int bits = bits_of(n);
  entry *entries = malloc(n * sizeof *entries);
  int64_t *output = malloc((n + 1) * sizeof *output);
  assert_true(entries && output);
  for (uint64_t i = 0; i < n; i++)
    entries[i] = (entry){key_of(i, n, philox, grid, bits), (int64_t)i};
  qsort(entries, n, sizeof *entries, by_key_then_value);
  const uint64_t first = reference_increment(n, grid, 2);
  const int runs = shuffle_runs(entries, n, (openreg_philox){philox.seed, philox.offset + first});
  memset(output, PATTERN, (n + 1) * sizeof *output);
  assert_int_equal(openreg_randperm_words(n, grid), first + (n + 3) / 4 * 4);
  assert_true(openreg_randperm_with_key_bits(most_bits, output, n, philox, grid));
  for (uint64_t i = 0; i < n; i++)
    assert_int_equal(output[i], entries[i].value);
  assert_true(reference_is_untouched(OPENREG_INT64, output, n, PATTERN));
  free(output);
  free(entries);
  return runs;
}

static int check(uint64_t n, openreg_philox philox, openreg_grid grid) {
  return check_showing(64, n, philox, grid);
}

static void small_permutations_sort_32_bit_keys(void **state) {
  (void)state;
  for (uint64_t n = 1; n < 200; n++)
    check(n, (openreg_philox){n, 4 * n}, h100);
  check(5000, (openreg_philox){3, 0}, tiny);
}

static void keys_of_32_bits_are_compared_as_signed_numbers(void **state) {
  (void)state;
  assert_int_equal(bits_of(25000), 32);
  assert_int_equal(bits_of(30083), 32);
  check(25000, (openreg_philox){1, 0}, h100);
  check(30083, (openreg_philox){2, 0}, h100);
}

static void large_permutations_sort_64_bit_keys(void **state) {
  (void)state;
  assert_int_equal(bits_of(30084), 33);
  check(30084, (openreg_philox){4, 8}, h100);
  check(300000, (openreg_philox){5, 8}, h100);
}

/* One permutation in ten has equal keys; among 300 short ones some do. */
static void equal_keys_are_shuffled(void **state) {
  (void)state;
  int runs = 0;
  for (uint64_t seed = 0; seed < 300; seed++)
    runs += check(50, (openreg_philox){seed, 0}, h100);
  assert_in_range(runs, 10, 60);
}

/* With 2^21 numbers a key does not fit in 64 bits. With fewer stored bits, small permutations
 * behave the same. */
static void keys_that_are_not_stored_whole_are_compared_whole(void **state) {
  (void)state;
  check_showing(15, 40000, (openreg_philox){6, 4}, h100);
  check_showing(8, 1000, (openreg_philox){7, 4}, h100);
  check_showing(1, 50, (openreg_philox){8, 4}, h100);
  int runs = 0;
  for (uint64_t seed = 0; seed < 300; seed++)
    runs += check_showing(6, 50, (openreg_philox){seed, 0}, h100);
  assert_in_range(runs, 10, 60);
}

/* More than one bucket, and more than one digit. */
static void a_large_permutation_uses_several_buckets(void **state) {
  (void)state;
  check(1 << 20, (openreg_philox){9, 0}, h100);
}

static void an_empty_permutation_takes_no_words(void **state) {
  (void)state;
  int64_t untouched = 5;
  assert_int_equal(openreg_randperm_words(0, h100), 0);
  assert_true(openreg_randperm(&untouched, 0, (openreg_philox){0, 0}, h100));
  assert_int_equal(untouched, 5);
}

/* Replaces malloc in everything that this test links (-Wl,--wrap). */
static bool memory_is_gone;
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes) {
  return memory_is_gone ? NULL : __real_malloc(bytes);
}

static void permutation_without_memory_is_refused(void **state) {
  (void)state;
  int64_t untouched[2] = {5, 5};
  memory_is_gone = true;
  const bool done = openreg_randperm(untouched, 2, (openreg_philox){0, 0}, h100);
  memory_is_gone = false;
  assert_false(done);
  assert_true(untouched[0] == 5 && untouched[1] == 5);
}

static void permutation_beyond_all_memory_is_refused(void **state) {
  (void)state;
  assert_false(openreg_randperm(NULL, UINT64_C(1) << 62, (openreg_philox){0, 0}, h100));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(small_permutations_sort_32_bit_keys),
      cmocka_unit_test(keys_of_32_bits_are_compared_as_signed_numbers),
      cmocka_unit_test(large_permutations_sort_64_bit_keys),
      cmocka_unit_test(equal_keys_are_shuffled),
      cmocka_unit_test(keys_that_are_not_stored_whole_are_compared_whole),
      cmocka_unit_test(a_large_permutation_uses_several_buckets),
      cmocka_unit_test(an_empty_permutation_takes_no_words),
      cmocka_unit_test(permutation_without_memory_is_refused),
      cmocka_unit_test(permutation_beyond_all_memory_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
