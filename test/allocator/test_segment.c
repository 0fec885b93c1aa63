/* test_segment.c: the size and address of segments, what limits them, and how they are released. */
#include "support.h"

#include <math.h>

enum { ALL = OPENREG_POOL_ALL, SMALL = OPENREG_POOL_SMALL, LARGE = OPENREG_POOL_LARGE };

static int64_t reserved(int kind) {
  return stats_of(0).reserved_bytes[kind].current;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void a_small_segment_is_2_mebibytes(void **state) {
  (void)state;
  openreg_block *one = take(0, 0, MIB), *other = take(0, 0, MIB);
  assert_int_equal(reserved(SMALL), 2 * MIB);
  openreg_block *third = take(0, 0, 1);
  assert_int_equal(reserved(SMALL), 4 * MIB);
  assert_int_equal(place_of(third), 2 * MIB);
  openreg_block_free(one);
  openreg_block_free(other);
  openreg_block_free(third);
}

/* By the rounded size: the last of 20 MiB, the first with its own size, the first of the next step.
 */
static void a_large_segment_is_20_mebibytes_or_fits_its_request(void **state) {
  (void)state;
  static const size_t requests[] = {MIB + 1,      10 * MIB - 512, 10 * MIB - 511, 10 * MIB,
                                    10 * MIB + 1, 12 * MIB,       63 * MIB};
  static const size_t segments[] = {20, 20, 10, 10, 12, 12, 64};
  for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
    openreg_block_free(take(0, 0, requests[i]));
    assert_int_equal(reserved(LARGE), segments[i] * MIB);
    assert_ok(openreg_cache_empty(0));
  }
}

static void large_segment_bytes_is_a_setting(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.large_segment_bytes = 12 * MIB;
  set_settings(settings);
  openreg_block_free(take(0, 0, 3 * MIB));
  assert_int_equal(reserved(LARGE), 12 * MIB);
}

static void segments_are_counted_as_they_come_and_go(void **state) {
  (void)state;
  openreg_block *small = take(0, 0, 100), *large = take(0, 3, 12 * MIB);
  openreg_memory_stats stats = stats_of(0);
  assert_stat(stats.segment[ALL], 2, 2, 2, 0);
  assert_stat(stats.segment[SMALL], 1, 1, 1, 0);
  assert_stat(stats.segment[LARGE], 1, 1, 1, 0);
  assert_stat(stats.reserved_bytes[ALL], 14 * MIB, 14 * MIB, 14 * MIB, 0);
  assert_int_equal(stats.device_allocs, 2);
  openreg_block_free(large);
  assert_int_equal(stats_of(0).segment[ALL].current, 2);
  assert_ok(openreg_cache_empty(0));
  stats = stats_of(0);
  assert_stat(stats.segment[ALL], 1, 2, 2, 1);
  assert_stat(stats.reserved_bytes[LARGE], 0, 12 * MIB, 12 * MIB, 12 * MIB);
  assert_int_equal(stats.device_frees, 1);
  openreg_block_free(small);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void a_segment_lies_at_the_lowest_place_where_it_fits(void **state) {
  (void)state;
  openreg_block *blocks[3] = {take(0, 1, 12 * MIB), take(0, 2, 512), take(0, 3, 14 * MIB)};
  assert_int_equal(place_of(blocks[0]), 0);
  assert_int_equal(place_of(blocks[1]), 12 * MIB);
  assert_int_equal(place_of(blocks[2]), 14 * MIB);
  openreg_block_free(blocks[0]);
  assert_ok(openreg_cache_empty(0));
  openreg_block *wide = take(0, 1, 14 * MIB), *narrow = take(0, 4, 512),
                *next = take(0, 5, 10 * MIB);
  assert_int_equal(place_of(wide), 28 * MIB);
  assert_int_equal(place_of(narrow), 0);
  assert_int_equal(place_of(next), 2 * MIB);
  openreg_block *all[] = {blocks[1], blocks[2], wide, narrow, next};
  for (int i = 0; i < 5; i++)
    openreg_block_free(all[i]);
}

static void segments_that_touch_are_never_one(void **state) {
  (void)state;
  openreg_block *low = take(0, 0, 10 * MIB), *high = take(0, 0, 10 * MIB);
  assert_int_equal(place_of(high), 10 * MIB);
  openreg_block_free(low);
  openreg_block_free(high);
  assert_int_equal(stats_of(0).inactive_split[ALL].current, 0);
  openreg_block *block = take(0, 0, 20 * MIB);
  assert_int_equal(place_of(block), 20 * MIB);
  openreg_block_free(block);
}

static void the_whole_device_can_be_one_block(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, CAPACITY);
  assert_int_equal(place_of(block), 0);
  assert_int_equal(ledger_free(0), 0);
  openreg_block_free(block);
}

/* Memory runs out, addresses do not: 20 MiB fit, though there is no gap of 20 below the capacity.
 */
static void free_memory_in_pieces_is_enough(void **state) {
  (void)state;
  openreg_block *blocks[3] = {take(0, 0, 10 * MIB), take(0, 1, 44 * MIB), take(0, 0, 10 * MIB)};
  openreg_block_free(blocks[0]);
  openreg_block_free(blocks[2]);
  openreg_block *block = take(0, 0, 20 * MIB);
  assert_int_equal(place_of(block), 54 * MIB);
  assert_int_equal(stats_of(0).alloc_retries, 1);
  openreg_block_free(block);
  openreg_block_free(blocks[1]);
}

/* ---- the limit ------------------------------------------------------------------------------- */

static void the_limit_is_of_what_is_reserved(void **state) {
  (void)state;
  assert_ok(openreg_memory_set_fraction(0, 0.25));
  openreg_block *block = take(0, 0, 16 * MIB); /* exactly the limit */
  assert_int_equal(refused(0, 0, 1).allowed_bytes, 16 * MIB);
  assert_ok(openreg_memory_set_fraction(0, 1));
  openreg_block_free(take(0, 0, 1));
  openreg_block_free(block);
}

static void the_limit_is_compared_with_the_size_of_the_segment(void **state) {
  (void)state;
  assert_ok(openreg_memory_set_fraction(0, 0.25));
  refused(0, 0, 2 * MIB); /* a segment of 20 MiB */
  openreg_block_free(take(0, 0, 10 * MIB));
}

static void memory_beyond_a_lower_limit_stays(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 3 * MIB);
  assert_ok(openreg_memory_set_fraction(0, 0.25));
  assert_int_equal(reserved(ALL), 20 * MIB);
  openreg_block *cached = take(0, 0, 15 * MIB);
  openreg_block_free(cached);
  refused(0, 1, 512);
  openreg_block_free(block);
}

static void a_limit_of_nothing_allows_nothing(void **state) {
  (void)state;
  assert_ok(openreg_memory_set_fraction(1, 0));
  assert_int_equal(refused(1, 0, 1).allowed_bytes, 0);
}

/* 46976204.8, 20132659.2 and 60397977.6 bytes. */
static void the_limit_is_rounded_to_the_nearest_byte(void **state) {
  (void)state;
  static const double fractions[] = {0.7, 0.3, 0.9, 0.4999999999};
  static const uint64_t limits[] = {46976205, 20132659, 60397978, 32 * MIB};
  for (int i = 0; i < 4; i++) {
    assert_ok(openreg_memory_set_fraction(0, fractions[i]));
    assert_int_equal(refused(0, 0, CAPACITY).allowed_bytes, limits[i]);
  }
}

static void the_limit_is_kept_for_each_device(void **state) {
  (void)state;
  double fraction;
  assert_ok(openreg_memory_set_fraction(1, 0.3));
  assert_ok(openreg_memory_get_fraction(1, &fraction));
  assert_true(fraction == (double)20132659 / CAPACITY); /* the actual limit */
  assert_ok(openreg_memory_get_fraction(0, &fraction));
  assert_true(fraction == 1);
}

static void a_fraction_outside_0_to_1_is_refused(void **state) {
  (void)state;
  double fraction;
  const double bad[] = {-0.1, 1.01, NAN, INFINITY};
  for (int i = 0; i < 4; i++)
    assert_status(openreg_memory_set_fraction(0, bad[i]), OPENREG_INVALID_ARGUMENT);
  assert_ok(openreg_memory_get_fraction(0, &fraction));
  assert_true(fraction == 1);
  assert_status(openreg_memory_set_fraction(TEST_DEVICES, 1), OPENREG_INVALID_DEVICE);
  assert_status(openreg_memory_get_fraction(-1, &fraction), OPENREG_INVALID_DEVICE);
  assert_status(openreg_memory_get_fraction(0, NULL), OPENREG_INVALID_ARGUMENT);
}

/* ---- rejection (throw_on_cudamalloc_oom) ----------------------------------------------------- */

/* 40 MiB are cached, and are not considered. */
static void a_rejected_request_tries_nothing_else(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.throws_on_oom = true;
  set_settings(settings);
  openreg_block_free(take(0, 0, 40 * MIB));
  assert_true(refused(0, 0, 60 * MIB).is_rejection);
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.oom_rejections, 1);
  assert_int_equal(stats.ooms, 0);
  assert_int_equal(stats.alloc_retries, 0);
  assert_int_equal(stats.stream_syncs, 0);
  assert_int_equal(stats.reserved_bytes[ALL].current, 40 * MIB);
}

/* The fraction of the settings counts, not the current one; up to it nothing is rejected. */
static void requests_are_rejected_beyond_the_fraction_of_the_settings(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.throws_on_oom = true;
  settings.memory_fraction = 0.5;
  set_settings(settings);
  openreg_block *block = take(0, 0, 32 * MIB);
  assert_true(refused(0, 0, 512).is_rejection);
  openreg_block_free(block);
}

static void a_request_beyond_the_limit_is_not_rejected(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.throws_on_oom = true;
  set_settings(settings);
  assert_ok(openreg_memory_set_fraction(0, 0.5));
  assert_false(refused(0, 0, 34 * MIB).is_rejection);
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.oom_rejections, 0);
  assert_int_equal(stats.ooms, 1);
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(a_small_segment_is_2_mebibytes),
      ON_EMPTY_DEVICES(a_large_segment_is_20_mebibytes_or_fits_its_request),
      ON_EMPTY_DEVICES(large_segment_bytes_is_a_setting),
      ON_EMPTY_DEVICES(segments_are_counted_as_they_come_and_go),
      ON_EMPTY_DEVICES(a_segment_lies_at_the_lowest_place_where_it_fits),
      ON_EMPTY_DEVICES(segments_that_touch_are_never_one),
      ON_EMPTY_DEVICES(the_whole_device_can_be_one_block),
      ON_EMPTY_DEVICES(free_memory_in_pieces_is_enough),
      ON_EMPTY_DEVICES(the_limit_is_of_what_is_reserved),
      ON_EMPTY_DEVICES(the_limit_is_compared_with_the_size_of_the_segment),
      ON_EMPTY_DEVICES(memory_beyond_a_lower_limit_stays),
      ON_EMPTY_DEVICES(a_limit_of_nothing_allows_nothing),
      ON_EMPTY_DEVICES(the_limit_is_rounded_to_the_nearest_byte),
      ON_EMPTY_DEVICES(the_limit_is_kept_for_each_device),
      ON_EMPTY_DEVICES(a_fraction_outside_0_to_1_is_refused),
      ON_EMPTY_DEVICES(a_rejected_request_tries_nothing_else),
      ON_EMPTY_DEVICES(requests_are_rejected_beyond_the_fraction_of_the_settings),
      ON_EMPTY_DEVICES(a_request_beyond_the_limit_is_not_rejected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
