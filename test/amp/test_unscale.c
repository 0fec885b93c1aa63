/* test_unscale.c: the unscale kernels of the four types, with one description of each type.
 *
 * Gradients lie in a buffer whose other bytes hold a pattern, so that a write outside of them is
 * found. half.h converts halves; test_half.c tests half.h against the definitions.
 */
#include "check.h"

#include <float.h>
#include <string.h>

#include "amp/amp.h"
#include "base/half.h"
#include "half_reference.h"

enum { LONGEST = 67, PATTERN = 0xaa, BUFFER_BYTES = 1024 };
/* 67: four vectors of 16 lanes and a rest of 3. 1024: more than 7 + 67 + 1 doubles. */

typedef struct type {
  const char *name;
  size_t bytes;
  double smallest, largest; /* subnormal; finite */
  void (*unscale)(void *gradients, size_t count, float inverse_scale, float *found_inf);
  void (*store)(void *gradients, size_t index, double value);
  double (*load)(const void *gradients, size_t index);
  double (*product)(double gradient, float inverse_scale);
} type;

#define DEFINE_TYPE(suffix, element, to_element, from_element)                                     \
  static void unscale_##suffix(void *gradients, size_t count, float inverse_scale,                 \
                               float *found_inf) {                                                 \
    openreg_amp_unscale_##suffix(gradients, count, inverse_scale, found_inf);                      \
  }                                                                                                \
  static void store_##suffix(void *gradients, size_t index, double value) {                        \
    ((element *)gradients)[index] = to_element(value);                                             \
  }                                                                                                \
  static double load_##suffix(const void *gradients, size_t index) {                               \
    return from_element(((const element *)gradients)[index]);                                      \
  }

#define F16_VALUE(bits)  reference_value(F16, bits)
#define BF16_VALUE(bits) reference_value(BF16, bits)

DEFINE_TYPE(f16, uint16_t, half_of_float, F16_VALUE)
DEFINE_TYPE(bf16, uint16_t, bfloat16_of_float, BF16_VALUE)
DEFINE_TYPE(f32, float, (float), (double))
DEFINE_TYPE(f64, double, (double), (double))

static double product_f16(double gradient, float inverse_scale) {
  return reference_rounded(F16, (float)gradient * inverse_scale);
}
static double product_bf16(double gradient, float inverse_scale) {
  return reference_rounded(BF16, (float)gradient * inverse_scale);
}
static double product_f32(double gradient, float inverse_scale) {
  return (float)gradient * inverse_scale;
}
static double product_f64(double gradient, float inverse_scale) {
  return gradient * inverse_scale;
}

#define TYPE(suffix, element, smallest, largest)                                                   \
  {                                                                                                \
#suffix, sizeof(element), smallest, largest, unscale_##suffix, store_##suffix, load_##suffix,  \
        product_##suffix                                                                           \
  }

static const type types[] = {
    TYPE(f16, uint16_t, 0x1p-24, 65504),
    TYPE(bf16, uint16_t, 0x1p-133, 0x1.fep127),
    TYPE(f32, float, 0x1p-149, FLT_MAX),
    TYPE(f64, double, 0x1p-1074, DBL_MAX),
};

/* `count` gradients that start `offset` elements behind a 64-byte boundary. */
typedef struct gradients {
  const type *type;
  size_t offset, count;
  float found_inf;
  _Alignas(64) unsigned char buffer[BUFFER_BYTES];
} gradients;

static void *start_of(gradients *g) {
  return g->buffer + g->offset * g->type->bytes;
}

/* 1, -2, 3, ... : exact in every type. */
static double plain_value(size_t index) {
  return index % 2 ? -(double)index - 1 : index + 1.0;
}

static void fill(gradients *g, const type *type, size_t offset, size_t count) {
  *g = (gradients){.type = type, .offset = offset, .count = count};
  memset(g->buffer, PATTERN, sizeof g->buffer);
  for (size_t i = 0; i < count; i++)
    type->store(start_of(g), i, plain_value(i));
}

static void unscale(gradients *g, float inverse_scale) {
  g->type->unscale(start_of(g), g->count, inverse_scale, &g->found_inf);
}

static void assert_gradient(gradients *g, size_t index, double expected) {
  double actual = g->type->load(start_of(g), index);
  if (!same_number(actual, expected))
    fail_msg("%s[%zu] of %zu at offset %zu is %a, expected %a", g->type->name, index, g->count,
             g->offset, actual, expected);
}

static void assert_nothing_beside_was_written(gradients *g) {
  size_t from = g->offset * g->type->bytes, to = from + g->count * g->type->bytes;
  for (size_t i = 0; i < sizeof g->buffer; i++)
    if ((i < from || i >= to) && g->buffer[i] != PATTERN)
      fail_msg("%s: byte %zu was written, beside %zu to %zu", g->type->name, i, from, to);
}

static void gradients_of_every_length_and_start_are_multiplied(void **state) {
  (void)state;
  for (size_t t = 0; t < LENGTH(types); t++)
    for (size_t offset = 0; offset < 8; offset++)
      for (size_t count = 0; count <= LONGEST; count++) {
        gradients g;
        fill(&g, &types[t], offset, count);
        unscale(&g, 0.3f);
        for (size_t i = 0; i < count; i++)
          assert_gradient(&g, i, types[t].product(plain_value(i), 0.3f));
        assert_nothing_beside_was_written(&g);
        assert_true(g.found_inf == 0);
      }
}

static void nonfinite_gradients_are_found_everywhere(void **state) {
  (void)state;
  const double bad[] = {INFINITY, -INFINITY, NAN};
  const float scales[] = {0.25f, 1};
  for (size_t t = 0; t < LENGTH(types); t++)
    for (size_t b = 0; b < LENGTH(bad); b++)
      for (size_t s = 0; s < LENGTH(scales); s++)
        for (size_t position = 0; position < LONGEST; position++) {
          gradients g;
          fill(&g, &types[t], 1, LONGEST);
          types[t].store(start_of(&g), position, bad[b]);
          unscale(&g, scales[s]);
          assert_true(g.found_inf == 1);
          for (size_t i = 0; i < LONGEST; i++)
            assert_gradient(&g, i, i == position ? bad[b] : plain_value(i) * scales[s]);
        }
}

static void nonfinite_values_outside_the_gradients_are_ignored(void **state) {
  (void)state;
  for (size_t t = 0; t < LENGTH(types); t++)
    for (size_t count = 0; count < LONGEST; count++) {
      gradients g;
      fill(&g, &types[t], 1, count);
      g.offset = 0;
      types[t].store(start_of(&g), 0, INFINITY);
      types[t].store(start_of(&g), count + 1, NAN);
      g.offset = 1;
      unscale(&g, 0.25f);
      assert_true(g.found_inf == 0);
    }
}

/* The bits of a signaling NaN, which any arithmetic would make quiet, in the order of `types`. */
static const uint64_t signalling_nan[] = {0x7c01, 0x7f81, 0x7f800001, 0x7ff0000000000001};

static void a_scale_of_one_keeps_every_bit(void **state) {
  (void)state;
  for (size_t t = 0; t < LENGTH(types); t++) {
    gradients g;
    fill(&g, &types[t], 0, LONGEST);
    memcpy(start_of(&g), &signalling_nan[t], types[t].bytes); /* little-endian */
    unsigned char before[BUFFER_BYTES];
    memcpy(before, g.buffer, sizeof before);
    unscale(&g, 1);
    assert_memory_equal(g.buffer, before, sizeof before);
    assert_true(g.found_inf == 1);
  }
}

/* Every instruction set gives the same NaN: quiet, with its sign and payload. */
static void a_signalling_nan_becomes_a_quiet_one(void **state) {
  (void)state;
  const uint64_t quiet_nan[] = {0x7e01, 0x7fc1, 0x7fc00001, 0x7ff8000000000001};
  for (size_t t = 0; t < LENGTH(types); t++) {
    gradients g;
    fill(&g, &types[t], 0, LONGEST);
    unsigned char *last = (unsigned char *)start_of(&g) + (LONGEST - 1) * types[t].bytes;
    memcpy(start_of(&g), &signalling_nan[t], types[t].bytes); /* little-endian */
    memcpy(last, &signalling_nan[t], types[t].bytes);
    unscale(&g, 0.5f);
    assert_memory_equal(start_of(&g), &quiet_nan[t], types[t].bytes);
    assert_memory_equal(last, &quiet_nan[t], types[t].bytes);
  }
}

static void finite_gradients_leave_what_was_found_before(void **state) {
  (void)state;
  const float scales[] = {0.5f, 1};
  for (size_t t = 0; t < LENGTH(types); t++)
    for (size_t s = 0; s < LENGTH(scales); s++) {
      gradients g;
      fill(&g, &types[t], 0, LONGEST);
      g.found_inf = 1;
      unscale(&g, scales[s]);
      assert_true(g.found_inf == 1);
    }
}

static void zero_gradients_are_allowed(void **state) {
  (void)state;
  for (size_t t = 0; t < LENGTH(types); t++) {
    float found_inf = 0;
    types[t].unscale(NULL, 0, 0.5f, &found_inf);
    types[t].unscale(NULL, 0, 1, &found_inf);
    assert_true(found_inf == 0);
  }
}

static void an_overflow_of_the_product_is_not_reported(void **state) {
  (void)state;
  for (size_t t = 0; t < LENGTH(types); t++) {
    gradients g;
    fill(&g, &types[t], 0, 2);
    types[t].store(start_of(&g), 0, types[t].largest);
    types[t].store(start_of(&g), 1, -types[t].largest);
    unscale(&g, 2);
    assert_gradient(&g, 0, INFINITY);
    assert_gradient(&g, 1, -INFINITY);
    assert_true(g.found_inf == 0);
  }
}

static void subnormals_are_multiplied_and_rounded_to_even(void **state) {
  (void)state;
  const double multiples[] = {1, 2, 3, -1, -3, 5}, halved[] = {0, 1, 2, -0.0, -2, 2};
  for (size_t t = 0; t < LENGTH(types); t++) {
    gradients g;
    fill(&g, &types[t], 1, LENGTH(multiples));
    for (size_t i = 0; i < LENGTH(multiples); i++)
      types[t].store(start_of(&g), i, multiples[i] * types[t].smallest);
    unscale(&g, 0.5f);
    for (size_t i = 0; i < LENGTH(multiples); i++)
      assert_gradient(&g, i, halved[i] * types[t].smallest);
    assert_true(g.found_inf == 0);
  }
}

static void the_sign_of_zero_is_kept(void **state) {
  (void)state;
  for (size_t t = 0; t < LENGTH(types); t++) {
    gradients g;
    fill(&g, &types[t], 0, 1);
    types[t].store(start_of(&g), 0, -0.0);
    unscale(&g, 0.5f);
    assert_gradient(&g, 0, -0.0);
  }
}

/* Each half once, in one call: 2^16 gradients. */
static void assert_every_half_is_multiplied(const type *type) {
  enum { HALVES = 1 << 16 };
  static uint16_t halves[HALVES];
  const float scales[] = {1.0f / 3, 1.0f / 65536, 3};
  for (size_t s = 0; s < LENGTH(scales); s++) {
    float found_inf = 0;
    for (uint32_t bits = 0; bits < HALVES; bits++)
      halves[bits] = (uint16_t)bits;
    type->unscale(halves, HALVES, scales[s], &found_inf);
    assert_true(found_inf == 1);
    for (uint32_t bits = 0; bits < HALVES; bits++) {
      uint16_t before = (uint16_t)bits;
      double expected = type->product(type->load(&before, 0), scales[s]);
      if (!same_number(type->load(halves, bits), expected))
        fail_msg("%s 0x%04x * %a is 0x%04x, expected %a", type->name, bits, scales[s], halves[bits],
                 expected);
    }
  }
}

static void every_f16_is_multiplied(void **state) {
  (void)state;
  assert_every_half_is_multiplied(&types[0]);
}

static void every_bf16_is_multiplied(void **state) {
  (void)state;
  assert_every_half_is_multiplied(&types[1]);
}

/* Float cannot hold the last bit of 1 + 2^-52. */
static void doubles_are_multiplied_in_double(void **state) {
  (void)state;
  double gradient = 1 + DBL_EPSILON;
  float found_inf = 0;
  openreg_amp_unscale_f64(&gradient, 1, 0.5f, &found_inf);
  assert_true(gradient == 0.5 + DBL_EPSILON / 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_of_every_length_and_start_are_multiplied),
      cmocka_unit_test(nonfinite_gradients_are_found_everywhere),
      cmocka_unit_test(nonfinite_values_outside_the_gradients_are_ignored),
      cmocka_unit_test(a_scale_of_one_keeps_every_bit),
      cmocka_unit_test(a_signalling_nan_becomes_a_quiet_one),
      cmocka_unit_test(finite_gradients_leave_what_was_found_before),
      cmocka_unit_test(zero_gradients_are_allowed),
      cmocka_unit_test(an_overflow_of_the_product_is_not_reported),
      cmocka_unit_test(subnormals_are_multiplied_and_rounded_to_even),
      cmocka_unit_test(the_sign_of_zero_is_kept),
      cmocka_unit_test(every_f16_is_multiplied),
      cmocka_unit_test(every_bf16_is_multiplied),
      cmocka_unit_test(doubles_are_multiplied_in_double),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
