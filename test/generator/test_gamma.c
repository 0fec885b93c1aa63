/* test_gamma.c: gamma numbers with a shape per element. */
#include "check.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const openreg_philox philox = {43, 24};

/* Single normal numbers of a stream: the sine, then the stored cosine. */
typedef struct normals {
  reference_draw draw;
  bool has_cosine;
} normals;

static double next_normal(reference_stream *stream, normals *normals) {
  if (!normals->has_cosine) {
    normals->draw.words[0] = reference_stream_word(stream);
    normals->draw.words[1] = reference_stream_word(stream);
  }
  normals->draw.result = normals->has_cosine;
  normals->has_cosine = !normals->has_cosine;
  return (double)(float)reference_normal(&normals->draw, false);
}

/* Marsaglia and Tsang with PyTorch's float constants; only the shape is rounded to the type. */
static double expected_of(openreg_type type, uint64_t i, double shape) {
  reference_stream stream = {.philox = philox, .subsequence = i};
  normals normals = {.has_cosine = false};
  double scale = 1;
  if (shape < 1) {
    scale = pow(1 - reference_stream_uniform(&stream), 1 / shape);
    shape = reference_round(type, shape + 1);
  }
  const double d = shape - (double)(1.0f / 3), c = 1 / sqrt(9 * d);
  for (;;) {
    const double z = next_normal(&stream, &normals), root = 1 + c * z;
    if (root <= 0)
      continue;
    const double v = pow(root, 3), u = 1 - reference_stream_uniform(&stream);
    if (u < 1 - (double)0.0331f * pow(z, 4) || log(u) < z * z / 2 + d * (1 - v + log(v)))
      return scale * d * v;
  }
}

static void check(openreg_type type, double shape, double tolerance) {
  enum { N = 2000 };
  double *alpha = malloc(N * sizeof *alpha), *result = malloc((N + 1) * sizeof *result);
  assert_true(alpha && result);
  for (uint64_t i = 0; i < N; i++)
    shape = reference_put(type, alpha, i, shape);
  memset(result, PATTERN, (N + 1) * sizeof *result);
  openreg_gamma(type, N, alpha, result, openreg_whole, philox);
  for (uint64_t i = 0; i < N; i++) {
    const double least = type == OPENREG_FLOAT16 ? 0x1p-14 : (double)FLT_MIN;
    const double expected = fmax(expected_of(type, i, shape), least);
    const double got = reference_element(type, result, i);
    if (!(fabs(got - expected) <= tolerance * expected))
      fail_msg("type %d, shape %g, element %d: %.9g, expected %.9g", (int)type, shape, (int)i, got,
               expected);
  }
  assert_true(reference_is_untouched(type, result, N, PATTERN));
  free(result);
  free(alpha);
}

static void every_type_gives_each_element_its_number(void **state) {
  (void)state;
  const double shapes[] = {0.3, 0.9, 1, 1.7, 2, 30, 1000};
  for (size_t i = 0; i < LENGTH(shapes); i++) {
    check(OPENREG_FLOAT16, shapes[i], 0x1p-11 + 2e-5);
    check(OPENREG_BFLOAT16, shapes[i], 0x1p-8 + 2e-5);
    check(OPENREG_FLOAT32, shapes[i], 2e-5);
    check(OPENREG_FLOAT64, shapes[i], 5e-6); /* its normals are floats */
  }
}

/* Including the shape 0, and shapes so small that every power underflows. */
static void numbers_are_at_least_the_smallest_normal(void **state) {
  (void)state;
  float alpha[] = {0, 1e-6f, FLT_TRUE_MIN}, result[3] = {0, 0, 0};
  openreg_gamma(OPENREG_FLOAT32, 3, alpha, result, openreg_whole, philox);
  for (int i = 0; i < 3; i++)
    assert_true(result[i] == FLT_MIN);
  const double zero = 0;
  double precise = 0;
  openreg_gamma(OPENREG_FLOAT64, 1, &zero, &precise, openreg_whole, philox);
  assert_true(precise == DBL_MIN);
  const uint16_t none = 0;
  uint16_t half = 0;
  openreg_gamma(OPENREG_FLOAT16, 1, &none, &half, openreg_whole, philox);
  assert_int_equal(half, 0x0400);
  openreg_gamma(OPENREG_BFLOAT16, 1, &none, &half, openreg_whole, philox);
  assert_int_equal(half, 0x0080);
}

/* Five standard errors; the fourth central moment of the distribution is 3a(a+2). */
static void mean_and_variance_are_the_shape(void **state) {
  (void)state;
  enum { N = 20000 };
  static double alpha[N], result[N];
  const double shapes[] = {0.5, 1, 4, 50};
  for (size_t s = 0; s < LENGTH(shapes); s++) {
    const double a = shapes[s];
    double sum = 0, squares = 0;
    for (int i = 0; i < N; i++)
      alpha[i] = a;
    openreg_gamma(OPENREG_FLOAT64, N, alpha, result, openreg_whole, philox);
    for (int i = 0; i < N; i++) {
      sum += result[i] - a;
      squares += pow(result[i] - a, 2);
    }
    assert_true(fabs(sum / N) < 5 * sqrt(a / N));
    assert_true(fabs(squares / N - a) < 5 * sqrt((3 * a * (a + 2) - a * a) / N));
  }
}

static void an_invalid_shape_gives_nan(void **state) {
  (void)state;
  const float alpha[] = {-1, NAN};
  float result[2] = {0, 0};
  openreg_gamma(OPENREG_FLOAT32, 2, alpha, result, openreg_whole, philox);
  assert_true(isnan(result[0]) && isnan(result[1]));
}

static void takes_twelve_words_and_writes_no_elements(void **state) {
  (void)state;
  assert_int_equal(openreg_gamma_words(), 12);
  openreg_gamma(OPENREG_FLOAT32, 0, NULL, NULL, openreg_whole, philox);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_type_gives_each_element_its_number),
      cmocka_unit_test(numbers_are_at_least_the_smallest_normal),
      cmocka_unit_test(mean_and_variance_are_the_shape),
      cmocka_unit_test(an_invalid_shape_gives_nan),
      cmocka_unit_test(takes_twelve_words_and_writes_no_elements),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
