/* test_lanes.c: the hot loops in the instruction set that OPENREG_SIMD names. */
#include "check.h"
#include "generator/lanes/lanes.h"

#include <math.h>
#include <string.h>

/* Every count up to a batch: whole vectors and rests. The words are edge cases, then arbitrary. */
enum { COUNT = PHILOX_BATCH };
static uint32_t words[COUNT];

static void fill_words(void) {
  const uint32_t edges[] = {0,          1,          2,          0x7FFFFFFF, 0x80000000, 0x80000001,
                            0xFFFFFF7F, 0xFFFFFF80, 0xFFFFFFFE, 0xFFFFFFFF, 0x01000001, 0x00FFFFFF};
  for (uint32_t j = 0; j < COUNT; j++)
    words[j] = j < LENGTH(edges) ? edges[j] : j * UINT32_C(2654435769) ^ j << 13;
}

static void remainders_are_those_of_division(void **state) {
  (void)state;
  fill_words();
  for (uint32_t d = 1; d != 0; d = d < 2000 ? d + 1 : d > UINT32_MAX / 9 * 8 ? 0 : d / 8 * 9 + 1) {
    uint32_t got[COUNT];
    openreg_lanes_chosen()->remainders(words, COUNT, openreg_divisor_of(d), 0, got);
    for (int j = 0; j < COUNT; j++)
      assert_int_equal(got[j], words[j] % d);
  }
  for (int bit = 1; bit < 32; bit++) {
    for (int64_t off = -1; off <= 1; off++) {
      const uint32_t d = (uint32_t)((INT64_C(1) << bit) + off);
      uint32_t got[COUNT];
      openreg_lanes_chosen()->remainders(words, COUNT, openreg_divisor_of(d), 0, got);
      for (int j = 0; j < COUNT; j++)
        assert_int_equal(got[j], words[j] % d);
    }
  }
  uint32_t got[COUNT];
  openreg_lanes_chosen()->remainders(words, COUNT, openreg_divisor_of(UINT32_MAX), 0, got);
  for (int j = 0; j < COUNT; j++)
    assert_int_equal(got[j], words[j] % UINT32_MAX);
}

static void uniforms_are_scaled_with_one_rounding(void **state) {
  (void)state;
  const float ranges[][2] = {{1, 0}, {2, -1}, {0.3f, 0.7f}, {1e30f, -3}};
  fill_words();
  for (size_t r = 0; r < LENGTH(ranges); r++) {
    for (unsigned count = 0; count <= COUNT; count++) {
      float got[COUNT];
      memset(got, PATTERN, sizeof got);
      openreg_lanes_chosen()->scale(words, count, ranges[r][0], ranges[r][1], got);
      for (unsigned j = 0; j < count; j++)
        assert_true(got[j] ==
                    fmaf(reference_uniform_of_word(words[j]), ranges[r][0], ranges[r][1]));
      for (unsigned j = count; j < COUNT; j++)
        assert_true(reference_is_untouched(OPENREG_FLOAT32, got, j, PATTERN));
    }
  }
}

static void uniforms_are_compared_strictly(void **state) {
  (void)state;
  fill_words();
  for (unsigned k = 0; k < COUNT; k++) {
    const float p = reference_uniform_of_word(words[k]);
    float got[COUNT];
    openreg_lanes_chosen()->below(words, COUNT, p, got);
    for (unsigned j = 0; j < COUNT; j++)
      assert_true(got[j] == (float)(reference_uniform_of_word(words[j]) < p));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(remainders_are_those_of_division),
      cmocka_unit_test(uniforms_are_scaled_with_one_rounding),
      cmocka_unit_test(uniforms_are_compared_strictly),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
