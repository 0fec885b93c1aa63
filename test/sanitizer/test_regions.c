/* Regions, compared with their definition byte by byte. */
#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

enum { BYTES = 700, PAIRS = 40000 };

/* A region of up to two dimensions: pairs of size and stride. */
static struct random_region box(uint64_t address, uint64_t element, int dims,
                                const int64_t *pairs) {
  struct random_region made = {{address, element, dims, NULL, NULL}, {0}, {0}};
  for (int i = 0; i < dims; i++) {
    made.sizes[i] = pairs[2 * i];
    made.strides[i] = pairs[2 * i + 1];
  }
  return made;
}

static openreg_sanitizer_answer overlap(struct random_region a, struct random_region b,
                                        openreg_sanitizer_run *common) {
  a.region.sizes = a.sizes, a.region.strides = a.strides;
  b.region.sizes = b.sizes, b.region.strides = b.strides;
  return openreg_sanitizer_overlap(&a.region, &b.region, common);
}

#define BOX(address, element, dims, ...) box(address, element, dims, (int64_t[]){__VA_ARGS__})

/* ---- by hand --------------------------------------------------------------------------------- */

static void interleaved_columns_do_not_overlap(void **state) {
  (void)state;
  struct random_region even = BOX(0x10000, 4, 2, 1000, 4000, 500, 8);
  struct random_region odd = BOX(0x10004, 4, 2, 1000, 4000, 500, 8);
  openreg_sanitizer_run common;
  assert_int_equal(overlap(even, odd, NULL), OPENREG_SANITIZER_NO);
  assert_int_equal(overlap(even, even, &common), OPENREG_SANITIZER_YES);
  assert_int_equal(common.begin, 0x10000);
  assert_int_equal(common.end, 0x10004);
}

static void halves_do_not_overlap(void **state) {
  (void)state;
  struct random_region whole = BOX(0, 4, 2, 64, 256, 64, 4);
  struct random_region left = BOX(0, 4, 2, 64, 256, 32, 4);
  struct random_region right = BOX(128, 4, 2, 64, 256, 32, 4);
  struct random_region upper = BOX(0, 4, 2, 32, 256, 64, 4);
  struct random_region lower = BOX(32 * 256, 4, 2, 32, 256, 64, 4);
  assert_int_equal(overlap(left, right, NULL), OPENREG_SANITIZER_NO);
  assert_int_equal(overlap(upper, lower, NULL), OPENREG_SANITIZER_NO);
  assert_int_equal(overlap(left, lower, NULL), OPENREG_SANITIZER_YES);
  assert_int_equal(overlap(whole, right, NULL), OPENREG_SANITIZER_YES);
}

static void crossing_diagonals_overlap_in_one_element(void **state) {
  (void)state;
  struct random_region main_diagonal = BOX(0, 4, 1, 100, 404), next = BOX(4, 4, 1, 99, 404);
  struct random_region across = BOX(396, 4, 1, 100, 396);
  assert_int_equal(overlap(main_diagonal, next, NULL), OPENREG_SANITIZER_NO);
  /* 100 columns are an even number: none is in the middle. */
  assert_int_equal(overlap(main_diagonal, across, NULL), OPENREG_SANITIZER_NO);
  main_diagonal = BOX(0, 4, 1, 101, 408);
  across = BOX(400, 4, 1, 101, 400);
  openreg_sanitizer_run common;
  assert_int_equal(overlap(main_diagonal, across, &common), OPENREG_SANITIZER_YES);
  assert_int_equal(common.begin, 50 * 408);
}

static void large_strides_without_a_common_divisor_are_decided(void **state) {
  (void)state;
  /* 7000003 i = 9000011 j + 5: i = 7000003 * 1714286 and so on, or there is no solution within the
   * sizes. */
  struct random_region a = BOX(0, 1, 1, 9000011, 7000003), b = BOX(5, 1, 1, 7000003, 9000011);
  openreg_sanitizer_run common;
  assert_int_equal(overlap(a, b, &common), OPENREG_SANITIZER_YES);
  assert_int_equal(common.begin % 7000003, 0);
  assert_int_equal((common.begin - 5) % 9000011, 0);
  a.sizes[0] = (int64_t)(common.begin / 7000003);
  assert_int_equal(overlap(a, b, NULL), OPENREG_SANITIZER_NO);
}

static void the_answer_beyond_the_work_limit_is_unknown(void **state) {
  (void)state;
  /* Sums of four primes each: nobody can tell quickly whether any are equal. */
  struct random_region a = BOX(0, 1, 4, 5000, 1000003, 5000, 1000033, 5000, 1000037, 5000, 1000039);
  struct random_region b =
      BOX(12345678, 1, 4, 5000, 1000081, 5000, 1000099, 5000, 1000117, 5000, 1000121);
  openreg_sanitizer_answer answer = overlap(a, b, NULL);
  assert_true(answer != OPENREG_SANITIZER_NO);
}

static void the_answer_for_an_invalid_region_is_unknown(void **state) {
  (void)state;
  struct random_region good = BOX(16, 4, 1, 10, 4);
  struct random_region negative = BOX(16, 4, 1, -1, 4);
  struct random_region below_zero = BOX(16, 4, 1, 10, -4);
  struct random_region beyond = BOX(16, 4, 1, INT64_MAX, 4);
  struct random_region many = good;
  many.region.dims = OPENREG_SANITIZER_MAX_DIMS + 1;
  struct random_region bad[] = {negative, below_zero, beyond, many};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    assert_int_equal(overlap(good, bad[i], NULL), OPENREG_SANITIZER_UNKNOWN);
    assert_int_equal(overlap(bad[i], good, NULL), OPENREG_SANITIZER_UNKNOWN);
  }
  assert_int_equal(overlap(good, good, NULL), OPENREG_SANITIZER_YES);
}

static void regions_have_as_many_dimensions_as_allowed(void **state) {
  (void)state;
  int64_t sizes[OPENREG_SANITIZER_MAX_DIMS], strides[OPENREG_SANITIZER_MAX_DIMS];
  for (int i = 0; i < OPENREG_SANITIZER_MAX_DIMS; i++) {
    sizes[i] = i % 4 == 0 ? 2 : 1;
    strides[i] = (int64_t)3 << (i / 2);
  }
  openreg_sanitizer_region a = {0, 1, OPENREG_SANITIZER_MAX_DIMS, sizes, strides}, b = a;
  b.address = 1;
  assert_int_equal(openreg_sanitizer_overlap(&a, &b, NULL), OPENREG_SANITIZER_NO);
  b.address = 12;
  assert_int_equal(openreg_sanitizer_overlap(&a, &b, NULL), OPENREG_SANITIZER_YES);
}

/* ---- by chance ------------------------------------------------------------------------------- */

static void random_regions_overlap_if_their_bytes_do(void **state) {
  (void)state;
  uint64_t random = 1, overlapping = 0, first = 0;
  for (int i = 0; i < PAIRS; i++) {
    unsigned char bytes[BYTES] = {0};
    struct random_region a, b;
    random_region(&random, BYTES, &a);
    random_region(&random, BYTES, &b);
    mark_region(&a.region, bytes, 1);
    mark_region(&b.region, bytes, 2);
    unsigned char *found = memchr(bytes, 3, BYTES);
    openreg_sanitizer_run common;
    openreg_sanitizer_answer answer = openreg_sanitizer_overlap(&a.region, &b.region, &common);
    assert_int_equal(answer, found != NULL ? OPENREG_SANITIZER_YES : OPENREG_SANITIZER_NO);
    if (found == NULL)
      continue;
    overlapping++;
    first += common.begin == (uint64_t)(found - bytes);
    assert_true(common.begin < common.end && common.end <= BYTES);
    for (uint64_t at = common.begin; at < common.end; at++)
      assert_int_equal(bytes[at], 3);
  }
  /* Both answers are frequent. The first byte is found, unless the regions are interleaved. */
  assert_true(overlapping > PAIRS / 10 && overlapping < PAIRS * 9 / 10);
  assert_true(first > overlapping * 9 / 10);
}

static void random_regions_cover_each_other_if_their_bytes_do(void **state) {
  (void)state;
  uint64_t random = 2, covering = 0;
  for (int i = 0; i < PAIRS; i++) {
    unsigned char bytes[BYTES] = {0};
    struct random_region a, b;
    random_region(&random, BYTES, &a);
    b = a;
    b.region.sizes = b.sizes, b.region.strides = b.strides;
    if (random_once_in(&random, 3))
      random_region(&random, BYTES, &b);
    for (int dim = 0; dim < b.region.dims; dim++)
      if (b.sizes[dim] > 1 && random_once_in(&random, 2)) {
        b.sizes[dim]--;
        b.region.address += random_once_in(&random, 2) ? (uint64_t)b.strides[dim] : 0;
      }
    if (!is_within(&b.region, BYTES))
      continue; /* empty, and moved outside */
    mark_region(&a.region, bytes, 1);
    mark_region(&b.region, bytes, 2);
    bool covers = memchr(bytes, 2, BYTES) == NULL;
    covering += covers;
    assert_int_equal(openreg_sanitizer_covers(&a.region, &b.region),
                     covers ? OPENREG_SANITIZER_YES : OPENREG_SANITIZER_NO);
  }
  assert_true(covering > PAIRS / 10 && covering < PAIRS * 9 / 10);
}

static void runs_of_a_random_region_are_its_bytes(void **state) {
  (void)state;
  uint64_t random = 3;
  for (int i = 0; i < PAIRS; i++) {
    unsigned char bytes[BYTES] = {0}, from_runs[BYTES] = {0};
    openreg_sanitizer_run runs[BYTES];
    struct random_region a;
    random_region(&random, BYTES, &a);
    mark_region(&a.region, bytes, 1);
    size_t count = openreg_sanitizer_runs(&a.region, runs, BYTES);
    assert_true(count <= BYTES);
    for (size_t k = 0; k < count; k++) {
      assert_true(runs[k].begin < runs[k].end);
      assert_true(k == 0 || runs[k].begin > runs[k - 1].end);
      memset(from_runs + runs[k].begin, 1, runs[k].end - runs[k].begin);
    }
    assert_memory_equal(bytes, from_runs, BYTES);
  }
}

static void runs_beyond_the_capacity_are_counted(void **state) {
  (void)state;
  struct random_region a = BOX(100, 4, 1, 10, 8);
  a.region.sizes = a.sizes, a.region.strides = a.strides;
  openreg_sanitizer_run runs[3] = {{0, 0}, {0, 0}, {7, 8}};
  assert_int_equal(openreg_sanitizer_runs(&a.region, runs, 2), 10);
  assert_int_equal(runs[1].begin, 108);
  assert_int_equal(runs[1].end, 112);
  assert_int_equal(runs[2].begin, 7);
  assert_int_equal(openreg_sanitizer_runs(&a.region, NULL, 0), 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(interleaved_columns_do_not_overlap),
      cmocka_unit_test(halves_do_not_overlap),
      cmocka_unit_test(crossing_diagonals_overlap_in_one_element),
      cmocka_unit_test(large_strides_without_a_common_divisor_are_decided),
      cmocka_unit_test(the_answer_beyond_the_work_limit_is_unknown),
      cmocka_unit_test(the_answer_for_an_invalid_region_is_unknown),
      cmocka_unit_test(regions_have_as_many_dimensions_as_allowed),
      cmocka_unit_test(random_regions_overlap_if_their_bytes_do),
      cmocka_unit_test(random_regions_cover_each_other_if_their_bytes_do),
      cmocka_unit_test(runs_of_a_random_region_are_its_bytes),
      cmocka_unit_test(runs_beyond_the_capacity_are_counted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
