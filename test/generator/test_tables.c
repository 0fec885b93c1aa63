/* test_tables.c: the hot loops of the instruction set that OPENREG_SIMD names give the same bits as
 * those in plain C, for every count, and write nothing else. */
#include "check.h"
#include "generator/lanes/lanes.h"

#include <math.h>
#include <string.h>

enum { COUNT = PHILOX_BATCH, WIDEST = 8, ROOM = COUNT * WIDEST };

static philox_words words[2];

/* Edge cases first, then arbitrary words. */
static int draw_words(void **state) {
  (void)state;
  static const uint32_t edges[] = {0,          1,          2,          0x7FFFFFFF,
                                   0x80000000, 0x80000001, 0xFFFFFF7F, 0xFFFFFF80,
                                   0xFFFFFFFE, 0xFFFFFFFF, 0x01000001, 0x00FFFFFF};
  for (int block = 0; block < 2; block++) {
    openreg_lanes_c.fill(1, 2, (uint64_t)block, COUNT, &words[block]);
    for (int lane = 0; lane < 4; lane++) {
      for (size_t j = 0; j < LENGTH(edges); j++)
        words[block].lane[lane][j] = edges[(j + (size_t)lane) % LENGTH(edges)];
    }
  }
  return 0;
}

/* The outputs of a loop from the plain table and from the selected one. */
typedef union output {
  float floats[ROOM];
  double doubles[ROOM];
  uint32_t words[ROOM];
  int64_t integers[ROOM];
  bool mask[ROOM];
  uint8_t bytes[ROOM * 8];
} output;

static output first[2], second[2];

static void clear(void) {
  memset(first, PATTERN, sizeof first);
  memset(second, PATTERN, sizeof second);
}

static void assert_same(const char *loop, unsigned count) {
  if (memcmp(&first[0], &first[1], sizeof first[0]) != 0 ||
      memcmp(&second[0], &second[1], sizeof second[0]) != 0)
    fail_msg("%s differs for %u", loop, count);
}

/* Runs one statement with both tables; `lanes`, `to` and `beside` are the table and its outputs. */
#define COMPARE(loop, statement)                                                                   \
  do {                                                                                             \
    for (unsigned count = 0; count <= COUNT; count++) {                                            \
      clear();                                                                                     \
      for (int t = 0; t < 2; t++) {                                                                \
        const lanes *const lanes = t ? openreg_lanes_chosen() : &openreg_lanes_c;                  \
        output *const to = &first[t], *const beside = &second[t];                                  \
        (void)beside;                                                                              \
        statement;                                                                                 \
      }                                                                                            \
      assert_same(loop, count);                                                                    \
    }                                                                                              \
  } while (0)

static void words_are_those_of_plain_c(void **state) {
  (void)state;
  const uint64_t starts[] = {0, 5, UINT32_MAX - 300u, UINT32_MAX - 100u, UINT64_C(1) << 40};
  for (size_t s = 0; s < LENGTH(starts); s++) {
    COMPARE("fill", {
      philox_words drawn;
      memset(&drawn, PATTERN, sizeof drawn);
      lanes->fill(~UINT64_C(7), starts[s], UINT64_C(3) << 40, count, &drawn);
      memcpy(to, &drawn, sizeof drawn);
    });
  }
}

static void uniforms_are_those_of_plain_c(void **state) {
  (void)state;
  const float ranges[][2] = {{1, 0}, {2, -1}, {0.3f, 0.7f}, {1e30f, -3}};
  const uint32_t *a = words[0].lane[0], *b = words[0].lane[1];
  for (size_t r = 0; r < LENGTH(ranges); r++) {
    const float range = ranges[r][0], from = ranges[r][1];
    COMPARE("scale", lanes->scale(a, count, range, from, to->floats));
    COMPARE("scale_doubles",
            lanes->scale_doubles(a, b, count, (double)range, (double)from, to->doubles));
  }
  COMPARE("below", lanes->below(a, count, 0.3f, to->floats));
  COMPARE("below_doubles", lanes->below_doubles(a, b, count, 0.3, to->doubles));
}

static void normals_and_logarithms_are_those_of_plain_c(void **state) {
  (void)state;
  const uint32_t *a = words[0].lane[0], *b = words[0].lane[1];
  COMPARE("logarithms", lanes->logarithms(a, count, to->floats));
  COMPARE("normals", lanes->normals(a, b, count, count, 1, 0, to->floats, beside->floats));
  COMPARE("normals", lanes->normals(a, b, count, count / 3, 1.7f, -2, to->floats, beside->floats));
}

static void integers_are_those_of_plain_c(void **state) {
  (void)state;
  const uint32_t *a = words[0].lane[0], *b = words[0].lane[1];
  COMPARE("words_64", lanes->words_64(a, b, count, 12345, to->integers));
  for (uint64_t d = 1; d; d = d < UINT64_MAX / 1000 ? d * 1000 + 7 : 0) {
    COMPARE("remainders_64",
            lanes->remainders_64(a, b, count, openreg_divisor_64_of(d), 3, to->integers));
    const uint32_t low = (uint32_t)d | 1;
    COMPARE("remainders", lanes->remainders(a, count, openreg_divisor_of(low), 3, to->words));
  }
}

static void changed_numbers_are_those_of_plain_c(void **state) {
  (void)state;
  const uint32_t *a = words[0].lane[0], *b = words[0].lane[1];
  COMPARE("replace", {
    openreg_lanes_c.scale(a, COUNT, 1, 0, to->floats);
    lanes->replace(to->floats, count, 1, 0.25f);
  });
  COMPARE("replace_doubles", {
    openreg_lanes_c.scale_doubles(a, b, COUNT, 1, 0, to->doubles);
    lanes->replace_doubles(to->doubles, count, 1, 0.25);
  });
  COMPARE("limit_and_multiply", {
    openreg_lanes_c.logarithms(a, COUNT, to->floats);
    lanes->limit_and_multiply(to->floats, count, -0x1p-24f, -1.5f);
  });
}

static void dropped_numbers_are_those_of_plain_c(void **state) {
  (void)state;
  static float uniforms[ROOM];
  openreg_lanes_c.interleave(words, COUNT, WIDEST, uniforms);
  for (unsigned width = 1; width <= WIDEST; width *= 2)
    COMPARE("interleave", lanes->interleave(words, count, width, to->floats));
  COMPARE("drop", {
    openreg_lanes_c.scale(words[0].lane[2], COUNT, 10, -5, to->floats);
    lanes->drop(uniforms, count, 0.6f, 1 / 0.6f, beside->mask, to->floats);
  });
}

static void elements_are_those_of_plain_c(void **state) {
  (void)state;
  static float floats[COUNT];
  static int32_t narrow[COUNT];
  static int64_t wide[COUNT];
  for (int j = 0; j < COUNT; j++) {
    memcpy(&floats[j], &words[0].lane[0][j], sizeof floats[j]);
    if (isnan(floats[j]))
      floats[j] = -65504.0f - (float)j;
    narrow[j] = (int32_t)words[0].lane[1][j];
    wide[j] = (int64_t)((uint64_t)words[0].lane[2][j] << 32 | words[0].lane[3][j]);
  }
  for (openreg_type type = OPENREG_UINT8; type <= OPENREG_FLOAT64; type++) {
    COMPARE("store_int32s", lanes->store_int32s(type, narrow, count, to));
    COMPARE("store_int64s", lanes->store_int64s(type, wide, count, to));
  }
  for (openreg_type type = OPENREG_FLOAT16; type <= OPENREG_FLOAT32; type++) {
    COMPARE("store_floats", lanes->store_floats(type, floats, count, to));
    COMPARE("round_floats", {
      memcpy(to->floats, floats, sizeof floats);
      lanes->round_floats(type, to->floats, count);
    });
    COMPARE("load_floats", {
      openreg_lanes_c.store_floats(type, floats, COUNT, beside);
      lanes->load_floats(type, beside, count, to->floats);
    });
  }
}

/* Two loops divide by multiplication; the processor's division gives the expected result. */
static void remainders_of_64_bits_are_those_of_division(void **state) {
  (void)state;
  const uint32_t *a = words[0].lane[0], *b = words[0].lane[1];
  for (int bit = 0; bit < 64; bit++) {
    for (uint64_t off = 0; off < 3; off++) {
      const uint64_t d = (UINT64_C(1) << bit) + off - 1;
      if (d == 0)
        continue;
      openreg_lanes_chosen()->remainders_64(a, b, COUNT, openreg_divisor_64_of(d), 0,
                                            first[0].integers);
      for (int j = 0; j < COUNT; j++) {
        const uint64_t word = (uint64_t)a[j] << 32 | b[j];
        assert_true((uint64_t)first[0].integers[j] == word % d);
      }
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(words_are_those_of_plain_c),
      cmocka_unit_test(uniforms_are_those_of_plain_c),
      cmocka_unit_test(normals_and_logarithms_are_those_of_plain_c),
      cmocka_unit_test(integers_are_those_of_plain_c),
      cmocka_unit_test(changed_numbers_are_those_of_plain_c),
      cmocka_unit_test(dropped_numbers_are_those_of_plain_c),
      cmocka_unit_test(elements_are_those_of_plain_c),
      cmocka_unit_test(remainders_of_64_bits_are_those_of_division),
  };
  return cmocka_run_group_tests(tests, draw_words, NULL);
}
