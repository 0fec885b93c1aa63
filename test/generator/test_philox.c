/* test_philox.c: the function, alone and in batches. known_answers.txt has published vectors. */
#include "check.h"
#include "generator/philox.h"

#include <string.h>

static void block_is_the_function_of_its_counter_and_key(void **state) {
  (void)state;
  const uint32_t counter[4] = {0x89abcdef, 0x01234567, 0x76543210, 0xfedcba98};
  const uint32_t key[2] = {0x11223344, 0x55667788};
  uint32_t expected[4], words[4];
  openreg_philox4x32_10(counter, key, expected);
  openreg_philox_block(UINT64_C(0x5566778811223344), UINT64_C(0xfedcba9876543210),
                       UINT64_C(0x0123456789abcdef), words);
  assert_memory_equal(words, expected, sizeof words);
}

static void block_equals_a_second_implementation(void **state) {
  (void)state;
  for (uint64_t i = 0; i < 1000; i++) {
    uint64_t seed = i * UINT64_C(0x9E3779B97F4A7C15), block = i << 30, subsequence = ~seed;
    uint32_t words[4], expected[4];
    openreg_philox_block(seed, subsequence, block, words);
    reference_philox(seed, subsequence, block, expected);
    assert_memory_equal(words, expected, sizeof words);
  }
}

static void check_batch(uint64_t first, uint64_t block, unsigned count) {
  philox_words words;
  memset(&words, PATTERN, sizeof words);
  openreg_philox_fill(42, first, block, count, &words);
  for (unsigned j = 0; j < PHILOX_BATCH; j++) {
    uint32_t expected[4];
    memset(expected, PATTERN, sizeof expected);
    if (j < count)
      reference_philox(42, first + j, block, expected);
    for (int l = 0; l < 4; l++)
      assert_int_equal(words.lane[l][j], expected[l]);
  }
}

static void batch_gives_consecutive_subsequences(void **state) {
  (void)state;
  check_batch(0, 0, PHILOX_BATCH);
  check_batch(1000, 7, PHILOX_BATCH);
}

static void batch_writes_no_more_than_asked(void **state) {
  (void)state;
  for (unsigned count = 0; count <= PHILOX_BATCH; count++)
    check_batch(3, 1, count);
}

static void batch_carries_into_the_upper_half_of_the_subsequence(void **state) {
  (void)state;
  check_batch(UINT32_MAX - 100, 0, PHILOX_BATCH);
  for (unsigned distance = 0; distance < 300; distance++)
    check_batch(UINT32_MAX - distance, UINT64_C(3) << 31, PHILOX_BATCH);
  check_batch((UINT64_C(7) << 32) - 1, UINT64_C(1) << 61, PHILOX_BATCH);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(block_is_the_function_of_its_counter_and_key),
      cmocka_unit_test(block_equals_a_second_implementation),
      cmocka_unit_test(batch_gives_consecutive_subsequences),
      cmocka_unit_test(batch_writes_no_more_than_asked),
      cmocka_unit_test(batch_carries_into_the_upper_half_of_the_subsequence),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
