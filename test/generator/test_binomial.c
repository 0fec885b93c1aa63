/* test_binomial.c: binomial numbers with a count and a probability per element. */
#include "generator/distributions/binomial.h"
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const openreg_type floating[] = {OPENREG_FLOAT16, OPENREG_BFLOAT16, OPENREG_FLOAT32,
                                        OPENREG_FLOAT64};
static const openreg_philox philox = {47, 28};

/* ---- the description, in double -------------------------------------------------------------- */

static double uniform(reference_stream *stream) {
  return (double)(reference_stream_word(stream) % 16777216) / 16777216;
}

static double by_inversion(reference_stream *stream, double count, double p) {
  double sum = 0;
  for (int terms = 0;; terms++) {
    sum += ceil(log(uniform(stream)) / log1p(-p));
    if (sum > count)
      return terms;
  }
}

/* Returns the ratio of the likelihoods of k and m, by gamma functions instead of Stirling's series.
 */
static double log_ratio(double count, double p, double k, double m) {
  return lgamma(m + 1) + lgamma(count - m + 1) - lgamma(k + 1) - lgamma(count - k + 1) +
         (k - m) * log(p / (1 - p));
}

static double by_rejection(reference_stream *stream, double count, double p) {
  const double sd = sqrt(count * p * (1 - p)), b = 1.15 + 2.53 * sd;
  const double a = -0.0873 + 0.0248 * b + 0.01 * p, m = floor((count + 1) * p);
  for (;;) {
    const double u = uniform(stream) - 0.5, v = uniform(stream), us = 0.5 - fabs(u);
    const double k = floor((2 * a / us + b) * u + count * p + 0.5);
    if (k < 0 || k > count)
      continue;
    if (us >= 0.07 && v <= 0.92 - 4.2 / b)
      return k;
    if (log(v * (2.83 + 5.1 / b) * sd / (a / (us * us) + b)) <= log_ratio(count, p, k, m))
      return k;
  }
}

static double sample(reference_stream *stream, double count, double p) {
  if (count <= 0 || p <= 0)
    return 0;
  if (p >= 1)
    return count;
  if (p > 0.5)
    return count - sample(stream, count, 1 - p);
  return count * p < 10 ? by_inversion(stream, count, p) : by_rejection(stream, count, p);
}

/* Fills `expected` as the GPU's threads would: blocks of 128 threads with 8 elements each, in turn.
 */
static void sample_all(double *expected, const double *count, const double *p, uint64_t n) {
  reference_stream *streams = calloc((n / 1024 + 1) * 128, sizeof *streams);
  assert_non_null(streams);
  for (uint64_t i = 0; i < n; i++) {
    const uint64_t thread = i / 1024 * 128 + i % 128;
    streams[thread].philox = philox;
    streams[thread].subsequence = thread;
    expected[i] = sample(&streams[thread], count[i], p[i]);
  }
  free(streams);
}

/* ---- elements -------------------------------------------------------------------------------- */

enum { MOST = 5000 };
static double count_of[MOST], p_of[MOST], expected[MOST];

/* Counts how many elements differ. Counts and probabilities are in count_of and p_of. */
static uint64_t differences(openreg_type type, uint64_t n) {
  static double counts[MOST], ps[MOST], result[MOST + 1];
  for (uint64_t i = 0; i < n; i++) {
    count_of[i] = reference_put(type, counts, i, count_of[i]);
    p_of[i] = reference_put(type, ps, i, p_of[i]);
  }
  memset(result, PATTERN, sizeof result);
  openreg_binomial(type, n, counts, ps, result, openreg_whole, philox);
  sample_all(expected, count_of, p_of, n);
  uint64_t different = 0;
  for (uint64_t i = 0; i < n; i++) {
    assert_false(reference_is_untouched(type, result, i, PATTERN));
    different += reference_element(type, result, i) != reference_round(type, expected[i]);
  }
  assert_true(reference_is_untouched(type, result, n, PATTERN));
  return different;
}

static uint64_t differences_of_equal_elements(openreg_type type, uint64_t n, double count,
                                              double p) {
  for (uint64_t i = 0; i < n; i++) {
    count_of[i] = count;
    p_of[i] = p;
  }
  return differences(type, n);
}

/* All kinds of elements in turn, which depend on earlier elements of their thread. */
static void fill_with_all_kinds(uint64_t n) {
  const double counts[] = {10, 100, 0, 37, 1000, 3, 250, 1};
  const double ps[] = {0.25, 0.5, 0.75, 0, 1, 0.125, 0.875};
  for (uint64_t i = 0; i < n; i++) {
    count_of[i] = counts[i * 7 / 3 % LENGTH(counts)];
    p_of[i] = ps[i * 5 / 2 % LENGTH(ps)];
  }
}

static void elements_of_a_thread_take_turns_on_its_stream(void **state) {
  (void)state;
  const uint64_t lengths[] = {1, 127, 128, 129, 1023, 1024, 1025, 1500, MOST};
  for (size_t i = 0; i < LENGTH(lengths); i++) {
    fill_with_all_kinds(lengths[i]);
    assert_int_equal(differences(OPENREG_FLOAT64, lengths[i]), 0);
    fill_with_all_kinds(lengths[i]);
    assert_in_range(differences(OPENREG_FLOAT32, lengths[i]), 0, 2);
  }
}

static void small_means_count_geometric_numbers(void **state) {
  (void)state;
  for (size_t t = 0; t < LENGTH(floating); t++) {
    assert_int_equal(differences_of_equal_elements(floating[t], 2000, 16, 0.25), 0);
    assert_int_equal(differences_of_equal_elements(floating[t], 2000, 19, 0.5), 0);
    assert_int_equal(differences_of_equal_elements(floating[t], 2000, 1, 0.0625), 0);
  }
}

static void large_means_reject(void **state) {
  (void)state;
  assert_int_equal(differences_of_equal_elements(OPENREG_FLOAT64, MOST, 40, 0.25), 0);
  assert_int_equal(differences_of_equal_elements(OPENREG_FLOAT64, MOST, 1e6, 0.3), 0);
  assert_int_equal(differences_of_equal_elements(OPENREG_FLOAT64, MOST, 1e9, 1e-7), 0);
  assert_in_range(differences_of_equal_elements(OPENREG_FLOAT32, MOST, 100, 0.3), 0, 5);
  assert_in_range(differences_of_equal_elements(OPENREG_FLOAT32, MOST, 10000, 0.5), 0, 50);
}

/* Where neither the mean nor a count in the formulas is rounded, 16-bit types differ from double
 * only by the odds, for a third of the elements. But one more or less draw changes all later
 * elements of the thread. */
static void large_means_reject_in_16_bits(void **state) {
  (void)state;
  assert_in_range(differences_of_equal_elements(OPENREG_FLOAT16, MOST, 64, 0.25), 0, 25);
  assert_in_range(differences_of_equal_elements(OPENREG_BFLOAT16, MOST, 64, 0.25), 0, 250);
}

static void probability_above_a_half_counts_failures(void **state) {
  (void)state;
  for (size_t t = 0; t < LENGTH(floating); t++)
    assert_int_equal(differences_of_equal_elements(floating[t], 2000, 16, 0.75), 0);
  assert_int_equal(differences_of_equal_elements(OPENREG_FLOAT64, 2000, 500, 0.9), 0);
}

/* A mean of 9.998 is 10 as a half: the type's own product selects the method. */
static void method_is_chosen_by_the_product_in_the_type(void **state) {
  (void)state;
  const uint16_t count = 0x5640 /* 100 */, p = 0x2E66 /* 0.09998 */;
  uint16_t half = 0;
  openreg_binomial(OPENREG_FLOAT16, 1, &count, &p, &half, openreg_whole, philox);
  reference_stream first = {.philox = philox}, second = {.philox = philox};
  const double mean_10 = by_rejection(&first, 100, 0.0999755859375);
  assert_true(mean_10 != by_inversion(&second, 100, 0.0999755859375));
  assert_true(reference_element(OPENREG_FLOAT16, &half, 0) == mean_10);
}

static void certain_outcomes_draw_nothing(void **state) {
  (void)state;
  const double counts[] = {10, 10, 0, -3, 7.5, 12};
  const double ps[] = {0, -1, 0.5, 0.5, 1, 2};
  const double certain[] = {0, 0, 0, 0, 7.5, 12};
  double result[6];
  openreg_binomial(OPENREG_FLOAT64, 6, counts, ps, result, openreg_whole, philox);
  for (int i = 0; i < 6; i++)
    assert_true(result[i] == certain[i]);
}

static void invalid_parameters_give_nan(void **state) {
  (void)state;
  const float counts[] = {NAN, 10, NAN}, ps[] = {0.5f, NAN, 0};
  float result[3] = {0, 0, 0};
  openreg_binomial(OPENREG_FLOAT32, 3, counts, ps, result, openreg_whole, philox);
  assert_true(isnan(result[0]) && isnan(result[1]) && isnan(result[2]));
}

/* Five standard errors of the mean; twice that of a normal variable's variance. */
static void mean_and_variance_are_those_of_the_distribution(void **state) {
  (void)state;
  const double counts[] = {12, 100, 5000}, ps[] = {0.1, 0.6, 0.37};
  static double result[MOST];
  for (size_t c = 0; c < LENGTH(counts); c++) {
    const double mean = counts[c] * ps[c], variance = mean * (1 - ps[c]);
    double sum = 0, squares = 0;
    for (int i = 0; i < MOST; i++) {
      count_of[i] = counts[c];
      p_of[i] = ps[c];
    }
    openreg_binomial(OPENREG_FLOAT64, MOST, count_of, p_of, result, openreg_whole, philox);
    for (int i = 0; i < MOST; i++) {
      sum += result[i] - mean;
      squares += pow(result[i] - mean, 2);
    }
    assert_true(fabs(sum / MOST) < 5 * sqrt(variance / MOST));
    assert_true(fabs(squares / MOST / variance - 1) < 10 * sqrt(2.0 / MOST));
  }
}

/* 1000 doubles with a limit of 4000 bytes are split in two parts, which both start at the same
 * position. */
static void parts_of_a_split_tensor_start_at_the_same_position(void **state) {
  (void)state;
  enum { N = 1000, PART = 500 };
  double cut[N], part[PART];
  fill_with_all_kinds(N);
  openreg_binomial_within(4000, OPENREG_FLOAT64, N, count_of, p_of, cut, openreg_whole, philox);
  for (int start = 0; start < N; start += PART) {
    openreg_binomial(OPENREG_FLOAT64, PART, count_of + start, p_of + start, part, openreg_whole,
                     philox);
    assert_memory_equal(cut + start, part, sizeof part);
  }
}

static void takes_44_words_and_writes_no_elements(void **state) {
  (void)state;
  assert_int_equal(openreg_binomial_words(), 44);
  openreg_binomial(OPENREG_FLOAT32, 0, NULL, NULL, NULL, openreg_whole, philox);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(elements_of_a_thread_take_turns_on_its_stream),
      cmocka_unit_test(small_means_count_geometric_numbers),
      cmocka_unit_test(large_means_reject),
      cmocka_unit_test(large_means_reject_in_16_bits),
      cmocka_unit_test(probability_above_a_half_counts_failures),
      cmocka_unit_test(method_is_chosen_by_the_product_in_the_type),
      cmocka_unit_test(certain_outcomes_draw_nothing),
      cmocka_unit_test(invalid_parameters_give_nan),
      cmocka_unit_test(mean_and_variance_are_those_of_the_distribution),
      cmocka_unit_test(parts_of_a_split_tensor_start_at_the_same_position),
      cmocka_unit_test(takes_44_words_and_writes_no_elements),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
