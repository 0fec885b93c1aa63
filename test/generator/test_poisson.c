/* test_poisson.c: Poisson numbers by each of cuRAND's three methods. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const openreg_type floating[] = {OPENREG_FLOAT16, OPENREG_BFLOAT16, OPENREG_FLOAT32,
                                        OPENREG_FLOAT64};
static const openreg_philox philox = {41, 20};

static double by_multiplication(reference_stream *stream, double lambda) {
  float product = expf((float)lambda);
  for (int k = 0;; k++) {
    product *= (float)reference_stream_uniform(stream);
    if (product <= 1.0f)
      return k;
  }
}

static double by_normal(reference_stream *stream, double lambda) {
  reference_draw draw = {.result = 0};
  for (int i = 0; i < 4; i++)
    draw.words[i] = reference_stream_word(stream);
  return floor(sqrt(lambda) * reference_normal(&draw, true) + lambda + 0.5);
}

/* The description's b(a, x), with its A and B, in double. */
static double steepness(double a) {
  return 1.43248035 / sqrt(a - 0.124009793) + 0.000253610749;
}

static double shift(double a) {
  return 0.210967349 / sqrt(a - 1.97381164) + 0.942017341;
}

static double envelope(double a, double x) {
  return pow(1 + exp(steepness(a) * (a - x) - shift(a)), -2);
}

static double by_rejection(reference_stream *stream, double a) {
  for (;;) {
    const double y = reference_stream_uniform(stream), t = reference_stream_uniform(stream);
    const double x = floor(a - (shift(a) + log(1 / sqrt(y) - 1)) / steepness(a));
    const double v = 1.3 * (envelope(a, x + 1) - envelope(a, x));
    if (v >= 1e-20 && t * v < exp(x * log(a) - a - lgamma(x + 1)))
      return x;
  }
}

/* Counts how many of n elements with mean `lambda` differ from those of the given method. */
static int differences(openreg_type type, double lambda, uint64_t n,
                       double (*method)(reference_stream *, double)) {
  double *parameters = malloc(n * sizeof *parameters), *result = malloc((n + 1) * sizeof *result);
  assert_true(parameters && result);
  for (uint64_t i = 0; i < n; i++)
    lambda = reference_put(type, parameters, i, lambda);
  memset(result, PATTERN, (n + 1) * sizeof *result);
  assert_int_equal(openreg_poisson_words(), 20);
  openreg_poisson(type, n, parameters, result, openreg_whole, philox);
  int count = 0;
  for (uint64_t i = 0; i < n; i++) {
    reference_stream stream = {.philox = philox, .subsequence = i};
    const double expected = reference_round(type, method(&stream, lambda));
    count += reference_element(type, result, i) != expected;
  }
  assert_true(reference_is_untouched(type, result, n, PATTERN));
  free(result);
  free(parameters);
  return count;
}

static void small_means_multiply_uniforms(void **state) {
  (void)state;
  const double means[] = {0, 0.01, 1, 4.3, 20, 63.75};
  for (size_t t = 0; t < LENGTH(floating); t++) {
    for (size_t i = 0; i < LENGTH(means); i++)
      assert_int_equal(differences(floating[t], means[i], 1000, by_multiplication), 0);
  }
}

static void mean_of_zero_gives_zero(void **state) {
  (void)state;
  const float zero = 0;
  float result = NAN;
  openreg_poisson(OPENREG_FLOAT32, 1, &zero, &result, openreg_whole, philox);
  assert_true(result == 0);
}

/* The likelihoods are computed in float. Their error is the rounding of numbers up to 4000 ln 4000,
 * whose last place is 1/256. So few elements are decided differently. */
static void means_from_64_to_4000_reject(void **state) {
  (void)state;
  assert_in_range(differences(OPENREG_FLOAT32, 64, 5000, by_rejection), 0, 2);
  assert_in_range(differences(OPENREG_FLOAT32, 100.5, 5000, by_rejection), 0, 2);
  assert_in_range(differences(OPENREG_FLOAT32, 1000, 5000, by_rejection), 0, 10);
  assert_in_range(differences(OPENREG_FLOAT64, 1000, 5000, by_rejection), 0, 10);
  assert_in_range(differences(OPENREG_FLOAT64, 4000, 5000, by_rejection), 0, 50);
  assert_in_range(differences(OPENREG_FLOAT16, 100.5, 1000, by_rejection), 0, 2);
  assert_in_range(differences(OPENREG_BFLOAT16, 100.5, 1000, by_rejection), 0, 2);
}

static void means_above_4000_scale_a_normal_number(void **state) {
  (void)state;
  const double means[] = {4096, 60000};
  for (size_t t = 0; t < LENGTH(floating); t++) {
    for (size_t i = 0; i < LENGTH(means); i++)
      assert_int_equal(differences(floating[t], means[i], 1000, by_normal), 0);
  }
  assert_int_equal(differences(OPENREG_FLOAT64, 1e9, 1000, by_normal), 0);
}

static void counts_end_with_32_bits(void **state) {
  (void)state;
  const double lambda[] = {1e12, (double)INFINITY};
  double result[2] = {0, 0};
  openreg_poisson(OPENREG_FLOAT64, 2, lambda, result, openreg_whole, (openreg_philox){1, 0});
  assert_true(result[0] == (double)UINT32_MAX);
  assert_true(result[1] == (double)UINT32_MAX || result[1] == 0);
}

/* Five standard errors of the mean, and of the variance, which equals the mean. */
static void mean_and_variance_are_lambda(void **state) {
  (void)state;
  enum { N = 20000 };
  static double lambda[N], result[N];
  const double means[] = {3, 50, 200, 3000, 5000};
  for (size_t m = 0; m < LENGTH(means); m++) {
    double sum = 0, squares = 0;
    for (int i = 0; i < N; i++)
      lambda[i] = means[m];
    openreg_poisson(OPENREG_FLOAT64, N, lambda, result, openreg_whole, philox);
    for (int i = 0; i < N; i++) {
      sum += result[i] - means[m];
      squares += pow(result[i] - means[m], 2);
    }
    assert_true(fabs(sum / N) < 5 * sqrt(means[m] / N));
    assert_true(fabs(squares / N / means[m] - 1) < 5 * sqrt((2 + 1 / means[m]) / N));
  }
}

static void an_invalid_mean_gives_nan(void **state) {
  (void)state;
  const float lambda[] = {-1, NAN, 0};
  float result[3] = {0, 0, 7};
  openreg_poisson(OPENREG_FLOAT32, 3, lambda, result, openreg_whole, philox);
  assert_true(isnan(result[0]) && isnan(result[1]) && result[2] == 0);
}

static void writes_no_elements(void **state) {
  (void)state;
  openreg_poisson(OPENREG_FLOAT32, 0, NULL, NULL, openreg_whole, philox);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(small_means_multiply_uniforms),
      cmocka_unit_test(mean_of_zero_gives_zero),
      cmocka_unit_test(means_from_64_to_4000_reject),
      cmocka_unit_test(means_above_4000_scale_a_normal_number),
      cmocka_unit_test(counts_end_with_32_bits),
      cmocka_unit_test(mean_and_variance_are_lambda),
      cmocka_unit_test(an_invalid_mean_gives_nan),
      cmocka_unit_test(writes_no_elements),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
