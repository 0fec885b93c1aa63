/* fill.c: see fill.h. */
#include "fill.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void assert_element(const operation *operation, uint64_t i, uint64_t n, double got) {
  const reference_draw draw =
      reference_draw_of(i, n, operation->philox, operation->grid, operation->results_per_call);
  const double expected = operation->expected(operation, &draw);
  const double allowed = operation->tolerance * fmax(1.0, fabs(expected));
  if (!(got == expected || fabs(got - expected) <= allowed))
    fail_msg("type %d, element %llu of %llu: %.17g, expected %.17g", (int)operation->type,
             (unsigned long long)i, (unsigned long long)n, got, expected);
}

static int by_value(const void *a, const void *b) {
  const int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
  return (left > right) - (left < right);
}

/* Returns the positions of all elements, sorted: the definition of memory order without strides. */
static int64_t *sorted_places(int dimensions, const int64_t *sizes, const int64_t *strides,
                              uint64_t n) {
  int64_t *places = malloc((n + 1) * sizeof *places);
  assert_non_null(places);
  for (uint64_t i = 0; i < n; i++) {
    uint64_t rest = i;
    places[i] = 0;
    for (int d = 0; d < dimensions; d++) {
      places[i] += (int64_t)(rest % (uint64_t)sizes[d]) * strides[d];
      rest /= (uint64_t)sizes[d];
    }
  }
  qsort(places, n, sizeof *places, by_value);
  return places;
}

void fill_check_strided(const operation *operation, int dimensions, const int64_t *sizes,
                        const int64_t *strides) {
  uint64_t n = 1;
  for (int d = 0; d < dimensions; d++)
    n *= (uint64_t)sizes[d];
  int64_t *places = sorted_places(dimensions, sizes, strides, n);
  const uint64_t length = (n ? (uint64_t)places[n - 1] + 1 : 0) + 16;
  const size_t bytes = length * openreg_type_bytes(operation->type);
  void *memory = malloc(bytes);
  assert_non_null(memory);
  memset(memory, PATTERN, bytes);
  const openreg_output output = {memory, operation->type, dimensions, sizes, strides};
  const uint64_t words =
      n ? reference_increment(n, operation->grid, operation->results_per_call) : 0;
  assert_int_equal(operation->words(operation, &output), words);
  operation->run(operation, &output);
  uint64_t i = 0;
  for (uint64_t place = 0; place < length; place++) {
    if (i < n && (uint64_t)places[i] == place) {
      assert_element(operation, i, n, reference_element(operation->type, memory, place));
      i++;
    } else {
      assert_true(reference_is_untouched(operation->type, memory, place, PATTERN));
    }
  }
  assert_int_equal(i, n);
  free(memory);
  free(places);
}

void fill_check_contiguous(const operation *operation, uint64_t n) {
  const int64_t size = (int64_t)n, stride = 1;
  fill_check_strided(operation, 1, &size, &stride);
}

void fill_check_all_shapes(const operation *operation) {
  const uint64_t lengths[] = {0, 1, 255, 256, 257, 1023, 1024, 1025, 2049, 4097, 10000};
  for (size_t i = 0; i < LENGTH(lengths); i++)
    fill_check_contiguous(operation, lengths[i]);
  fill_check_strided(operation, 0, NULL, NULL);
  fill_check_strided(operation, 2, (int64_t[]){0, 5}, (int64_t[]){5, 1});
  fill_check_strided(operation, 2, (int64_t[]){50, 70}, (int64_t[]){1, 50});
  fill_check_strided(operation, 4, (int64_t[]){3, 5, 7, 11}, (int64_t[]){385, 1, 55, 5});
  fill_check_strided(operation, 1, (int64_t[]){1500}, (int64_t[]){3});
  fill_check_strided(operation, 3, (int64_t[]){30, 20, 3}, (int64_t[]){4, 150, 1});
}
