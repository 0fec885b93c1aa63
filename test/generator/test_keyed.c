/* test_keyed.c: numbers and keys that depend on a key alone. */
#include "check.h"

#include <math.h>
#include <string.h>

static const openreg_key key = {UINT64_C(0x5566778811223344), UINT64_C(0xfffffffffffffff0)};

static void words_of(uint64_t block, uint32_t words[4]) {
  reference_philox(key.seed, 0, key.offset + block, words);
}

static void a_derived_key_is_a_block_of_its_key(void **state) {
  (void)state;
  for (uint64_t i = 0; i < 100; i++) { /* the offset wraps around */
    uint32_t words[4];
    words_of(i, words);
    const openreg_key derived = openreg_key_derive(key, i);
    assert_int_equal(derived.seed, words[0] | (uint64_t)words[1] << 32);
    assert_int_equal(derived.offset, words[2] | (uint64_t)words[3] << 32);
  }
}

static double uniform(openreg_type type, uint64_t i, double from, double to) {
  uint32_t words[4];
  if (type == OPENREG_FLOAT64) {
    words_of(i / 2, words);
    const uint64_t bits = (uint64_t)words[i % 2 * 2] << 32 | words[i % 2 * 2 + 1];
    return fma(ldexp((double)(bits % (UINT64_C(1) << 53)), -53), to - from, from);
  }
  words_of(i / 4, words);
  const int bits = type == OPENREG_FLOAT16 ? 11 : type == OPENREG_BFLOAT16 ? 8 : 24;
  const double unit = ldexp(words[i % 4] % (1u << bits), -bits);
  const double low = reference_round(type, from);
  const double range = reference_round(type, reference_round(type, to) - low);
  return reference_round(type, fmaf((float)unit, (float)range, (float)low));
}

static double normal(openreg_type type, uint64_t i, double mean, double deviation) {
  uint32_t words[4];
  double u, v;
  if (type == OPENREG_FLOAT64) {
    words_of(i / 2, words);
    u = ldexp(words[0], -32) + ldexp(words[1], -64) + ldexp(1, -65);
    v = ldexp(words[2], -32) + ldexp(words[3], -64) + ldexp(1, -65);
  } else {
    words_of(i / 4, words);
    u = ldexp(words[i % 4 / 2 * 2] + 0.5, -32);
    v = ldexp(words[i % 4 / 2 * 2 + 1] + 0.5, -32);
  }
  const double radius = sqrt(-2 * log(u)), angle = 2 * acos(-1.0) * v;
  return mean + deviation * radius * (i % 2 == 0 ? cos(angle) : sin(angle));
}

enum { COUNT = 2501 }; /* more than two batches, and a block in part */

static const openreg_type types[] = {OPENREG_FLOAT16, OPENREG_BFLOAT16, OPENREG_FLOAT32,
                                     OPENREG_FLOAT64};

static void uniform_numbers_are_the_low_bits_of_words(void **state) {
  (void)state;
  for (size_t t = 0; t < LENGTH(types); t++) {
    double elements[COUNT + 1];
    memset(elements, PATTERN, sizeof elements);
    openreg_keyed_uniform(types[t], key, 0, COUNT, -1.3, 2.6, elements);
    for (uint64_t i = 0; i < COUNT; i++)
      assert_true(reference_element(types[t], elements, i) == uniform(types[t], i, -1.3, 2.6));
    assert_true(reference_is_untouched(types[t], elements, COUNT, PATTERN));
  }
}

static void normal_numbers_are_pairs_with_the_cosine_first(void **state) {
  (void)state;
  static const double tolerances[] = {8e-3, 6e-2, 4e-6, 1e-14};
  for (size_t t = 0; t < LENGTH(types); t++) {
    double elements[COUNT + 1];
    memset(elements, PATTERN, sizeof elements);
    openreg_keyed_normal(types[t], key, 0, COUNT, 0.5, 2, elements);
    for (uint64_t i = 0; i < COUNT; i++) {
      const double difference =
          reference_element(types[t], elements, i) - normal(types[t], i, 0.5, 2);
      assert_true(fabs(difference) <= tolerances[t]);
    }
    assert_true(reference_is_untouched(types[t], elements, COUNT, PATTERN));
  }
}

static void parts_are_parts_of_the_whole(void **state) {
  (void)state;
  for (size_t t = 0; t < LENGTH(types); t++) {
    const size_t bytes = openreg_type_bytes(types[t]);
    double whole[COUNT], parts[COUNT];
    openreg_keyed_normal(types[t], key, 0, COUNT, 0, 1, whole);
    openreg_keyed_normal(types[t], key, 0, 1204, 0, 1, parts);
    openreg_keyed_normal(types[t], key, 1204, COUNT - 1204, 0, 1, (char *)parts + 1204 * bytes);
    assert_memory_equal(whole, parts, COUNT * bytes);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_derived_key_is_a_block_of_its_key),
      cmocka_unit_test(uniform_numbers_are_the_low_bits_of_words),
      cmocka_unit_test(normal_numbers_are_pairs_with_the_cosine_first),
      cmocka_unit_test(parts_are_parts_of_the_whole),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
