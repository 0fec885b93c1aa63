/* test_stream.c: a subsequence read word by word, and single normal numbers from it. */
#include "check.h"
#include "generator/word_stream.h"

#include <math.h>

static const openreg_philox philox = {37, 40};

static void words_are_those_of_block_after_block(void **state) {
  (void)state;
  stream stream = stream_start(philox, 9);
  reference_stream expected = {.philox = philox, .subsequence = 9};
  for (int i = 0; i < 50; i++)
    assert_int_equal(stream_word(&stream), reference_stream_word(&expected));
}

/* A normal number takes two words, and its cosine is kept while other words are drawn. */
static void float_normals_come_in_pairs_around_other_draws(void **state) {
  (void)state;
  uint32_t words[8];
  for (uint64_t block = 0; block < 2; block++)
    reference_philox(philox.seed, 9, philox.offset / 4 + block, words + 4 * block);
  const reference_draw first = {{words[0], words[1], 0, 0}, 0};
  const reference_draw second = {{words[0], words[1], 0, 0}, 1};
  const reference_draw third = {{words[3], words[4], 0, 0}, 0};
  stream stream = stream_start(philox, 9);
  assert_float_equal(stream_normal_float(&stream), reference_normal(&first, false), 2e-6);
  assert_true(stream_uniform(&stream) == reference_uniform_of_word(words[2]));
  assert_float_equal(stream_normal_float(&stream), reference_normal(&second, false), 2e-6);
  assert_float_equal(stream_normal_float(&stream), reference_normal(&third, false), 2e-6);
  assert_int_equal(stream_word(&stream), words[5]);
}

static void double_normals_take_four_words_a_pair(void **state) {
  (void)state;
  reference_draw draw = {.result = 0};
  reference_philox(philox.seed, 9, philox.offset / 4, draw.words);
  stream stream = stream_start(philox, 9);
  assert_true(fabs(stream_normal_double(&stream) - reference_normal(&draw, true)) < 1e-14);
  draw.result = 1;
  assert_true(fabs(stream_normal_double(&stream) - reference_normal(&draw, true)) < 1e-14);
  reference_stream next = {.philox = philox, .subsequence = 9, .read = 4};
  assert_int_equal(stream_word(&stream), reference_stream_word(&next));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(words_are_those_of_block_after_block),
      cmocka_unit_test(float_normals_come_in_pairs_around_other_draws),
      cmocka_unit_test(double_normals_take_four_words_a_pair),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
