/* test_shares.c: kernels write the same in shares as at once.
 *
 * Lengths are near those of a batch, a wave and a call of a small GPU. Outputs start one element
 * behind an aligned address. Each share runs alone into a buffer full of PATTERN, so that elements
 * of other shares are recognized.
 */
#include "check.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 9000, GUARD = 64 };

static const openreg_philox philox = {77, 12};

/* Runs a kernel for one share of n elements of `type`. */
typedef void kernel(openreg_type type, uint64_t n, void *elements, openreg_share share);

static openreg_output line(openreg_type type, const int64_t *n, void *elements) {
  static const int64_t one = 1;
  return (openreg_output){elements, type, 1, n, &one};
}

#define ON_THE_GRID(name, ...)                                                                     \
  static void fill_##name(openreg_type type, uint64_t n, void *elements, openreg_share share) {    \
    const int64_t size = (int64_t)n;                                                               \
    const openreg_output output = line(type, &size, elements);                                     \
    openreg_##name(&output, share, philox, tiny, __VA_ARGS__);                                     \
  }

ON_THE_GRID(uniform, -1, 2)
ON_THE_GRID(normal, 1, 2)
ON_THE_GRID(log_normal, 0, 1)
ON_THE_GRID(cauchy, 0, 1)
ON_THE_GRID(exponential, 2)
ON_THE_GRID(geometric, 0.3)
ON_THE_GRID(bernoulli, 0.4)
ON_THE_GRID(random, OPENREG_RANDOM_FROM_TO, 100, 0)

static double parameters[MOST];

static int choose_parameters(void **state) {
  (void)state;
  for (uint64_t i = 0; i < MOST; i++)
    reference_put(OPENREG_FLOAT32, parameters, i, 0.25 + (double)(i % 7) / 10);
  return 0;
}

static void bernoulli_tensor(openreg_type type, uint64_t n, void *elements, openreg_share share) {
  const int64_t size = (int64_t)n;
  const openreg_output output = line(type, &size, elements);
  openreg_bernoulli_tensor(&output, share, philox, parameters);
}

static void poisson(openreg_type type, uint64_t n, void *elements, openreg_share share) {
  openreg_poisson(type, n, parameters, elements, share, philox);
}

static void gamma_numbers(openreg_type type, uint64_t n, void *elements, openreg_share share) {
  openreg_gamma(type, n, parameters, elements, share, philox);
}

static void binomial(openreg_type type, uint64_t n, void *elements, openreg_share share) {
  openreg_binomial(type, n, parameters, parameters, elements, share, philox);
}

static void rrelu(openreg_type type, uint64_t n, void *elements, openreg_share share) {
  static double result[MOST];
  openreg_rrelu(type, n, parameters, elements, result, share, philox, tiny, 0.1, 0.3);
}

static void dropout_elements(openreg_type type, uint64_t n, void *elements, openreg_share share) {
  static bool mask[MOST];
  openreg_dropout(type, n, 1, parameters, elements, mask, share, philox, tiny, 0.3);
}

static void dropout_vectors(openreg_type type, uint64_t n, void *elements, openreg_share share) {
  static bool mask[MOST];
  const int width = openreg_dropout_vector_width(type, n, 0, true);
  openreg_dropout(type, n, width, parameters, elements, mask, share, philox, tiny, 0.3);
}

static void dropout_mask(openreg_type type, uint64_t n, void *elements, openreg_share share) {
  static double result[MOST];
  const int width = openreg_dropout_vector_width(OPENREG_FLOAT16, n, 0, true);
  (void)type;
  openreg_dropout(OPENREG_FLOAT16, n, width, parameters, result, elements, share, philox, tiny,
                  0.3);
}

/* Counts the elements that share `index` of `count` wrote, which must equal those of `whole`. */
static uint64_t check_share(kernel *run, openreg_type type, uint64_t n, const uint8_t *whole,
                            openreg_share share) {
  const size_t bytes = openreg_type_bytes(type);
  static uint8_t buffer[(MOST + GUARD) * sizeof(double)] __attribute__((aligned(64)));
  memset(buffer, PATTERN, sizeof buffer);
  run(type, n, buffer + bytes, share);
  uint64_t written = 0;
  for (uint64_t i = 0; i < n + 2; i++) {
    if (reference_is_untouched(type, buffer, i, PATTERN))
      continue;
    written++;
    assert_memory_equal(buffer + i * bytes, whole + i * bytes, bytes);
  }
  return written;
}

static void check(kernel *run, openreg_type type, uint64_t n) {
  static const uint32_t counts[] = {1, 2, 3, 64};
  static uint8_t whole[(MOST + GUARD) * sizeof(double)] __attribute__((aligned(64)));
  memset(whole, PATTERN, sizeof whole);
  run(type, n, whole + openreg_type_bytes(type), openreg_whole);
  for (uint64_t i = 0; i < n + 2; i++)
    assert_int_equal(reference_is_untouched(type, whole, i, PATTERN), i == 0 || i > n);
  for (size_t c = 0; c < LENGTH(counts); c++) {
    uint64_t written = 0;
    for (uint32_t index = 0; index < counts[c]; index++)
      written += check_share(run, type, n, whole, (openreg_share){index, counts[c]});
    assert_int_equal(written, n);
  }
}

/* 1024 threads: a wave is 1024 elements, a call 4096 or 2048; the blocks of binomial are 1024. */
static const uint64_t lengths[] = {1,    2,    255,  256,  257,  1000, 1023, 1024, 1025, 2047,
                                   2048, 2049, 3333, 4095, 4096, 4097, 4352, 8192, 8200, MOST};

static void check_lengths(kernel *run, openreg_type type) {
  for (size_t l = 0; l < LENGTH(lengths); l++)
    check(run, type, lengths[l]);
}

static void shares_of_kernels_on_the_grid_make_the_whole(void **state) {
  (void)state;
  kernel *const kernels[] = {fill_uniform, fill_normal, fill_log_normal, fill_cauchy,
                             fill_exponential};
  const openreg_type types[] = {OPENREG_FLOAT16, OPENREG_BFLOAT16, OPENREG_FLOAT32,
                                OPENREG_FLOAT64};
  for (size_t k = 0; k < LENGTH(kernels); k++) {
    for (size_t t = 0; t < LENGTH(types); t++)
      check_lengths(kernels[k], types[t]);
  }
}

static void shares_of_integers_make_the_whole(void **state) {
  (void)state;
  kernel *const kernels[] = {fill_geometric, fill_bernoulli, fill_random, bernoulli_tensor};
  const openreg_type types[] = {OPENREG_UINT8, OPENREG_INT32, OPENREG_INT64, OPENREG_BFLOAT16};
  for (size_t k = 0; k < LENGTH(kernels); k++) {
    for (size_t t = 0; t < LENGTH(types); t++)
      check_lengths(kernels[k], types[t]);
  }
}

static void shares_of_kernels_with_parameters_per_element_make_the_whole(void **state) {
  (void)state;
  kernel *const kernels[] = {poisson, gamma_numbers, binomial, rrelu};
  for (size_t k = 0; k < LENGTH(kernels); k++)
    check_lengths(kernels[k], OPENREG_FLOAT32);
}

static void shares_of_dropout_make_the_whole(void **state) {
  (void)state;
  check_lengths(dropout_elements, OPENREG_FLOAT32);
  check_lengths(dropout_vectors, OPENREG_FLOAT32);
  check_lengths(dropout_vectors, OPENREG_FLOAT64);
  check_lengths(dropout_mask, OPENREG_BOOL);
}

/* An output with gaps, and one with fewer elements than shares. */
static void shares_of_strided_outputs_make_the_whole(void **state) {
  (void)state;
  const int64_t sizes[] = {37, 3, 29}, strides[] = {100, 1, 3};
  static float whole[4000], shared[4000];
  memset(whole, PATTERN, sizeof whole);
  memset(shared, PATTERN, sizeof shared);
  openreg_output output = {whole, OPENREG_FLOAT32, 3, sizes, strides};
  openreg_normal(&output, openreg_whole, philox, tiny, 0, 1);
  output.data = shared;
  for (uint32_t index = 0; index < 5; index++)
    openreg_normal(&output, (openreg_share){4 - index, 5}, philox, tiny, 0, 1);
  assert_memory_equal(whole, shared, sizeof whole);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shares_of_kernels_on_the_grid_make_the_whole),
      cmocka_unit_test(shares_of_integers_make_the_whole),
      cmocka_unit_test(shares_of_kernels_with_parameters_per_element_make_the_whole),
      cmocka_unit_test(shares_of_dropout_make_the_whole),
      cmocka_unit_test(shares_of_strided_outputs_make_the_whole),
  };
  return cmocka_run_group_tests(tests, choose_parameters, NULL);
}
