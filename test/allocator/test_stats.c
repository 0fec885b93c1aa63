/* test_stats.c: the statistics after sequences whose values were computed by hand, from the rules
 * that CUDA's caching allocator states for each statistic. */
#include "support.h"

#include <string.h>

enum { ALL = OPENREG_POOL_ALL, SMALL = OPENREG_POOL_SMALL, LARGE = OPENREG_POOL_LARGE };

static void one_small_block(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 100);
  openreg_memory_stats stats = stats_of(0);
  for (int kind = ALL; kind <= SMALL; kind++) {
    assert_stat(stats.allocation[kind], 1, 1, 1, 0);
    assert_stat(stats.segment[kind], 1, 1, 1, 0);
    assert_stat(stats.active[kind], 1, 1, 1, 0);
    assert_stat(stats.inactive_split[kind], 1, 1, 1, 0);
    assert_stat(stats.allocated_bytes[kind], 512, 512, 512, 0);
    assert_stat(stats.reserved_bytes[kind], 2 * MIB, 2 * MIB, 2 * MIB, 0);
    assert_stat(stats.active_bytes[kind], 512, 512, 512, 0);
    assert_stat(stats.inactive_split_bytes[kind], 2 * MIB - 512, 2 * MIB - 512, 2 * MIB - 512, 0);
    assert_stat(stats.requested_bytes[kind], 100, 100, 100, 0);
  }
  assert_stat(stats.allocation[LARGE], 0, 0, 0, 0);
  assert_stat(stats.reserved_bytes[LARGE], 0, 0, 0, 0);
  assert_int_equal(stats.device_allocs, 1);
  assert_int_equal(stats.device_frees, 0);

  openreg_block_free(block);
  stats = stats_of(0);
  for (int kind = ALL; kind <= SMALL; kind++) {
    assert_stat(stats.allocation[kind], 0, 1, 1, 1);
    assert_stat(stats.segment[kind], 1, 1, 1, 0);
    assert_stat(stats.active[kind], 0, 1, 1, 1);
    assert_stat(stats.inactive_split[kind], 0, 1, 1, 1); /* a whole segment is not split */
    assert_stat(stats.allocated_bytes[kind], 0, 512, 512, 512);
    assert_stat(stats.reserved_bytes[kind], 2 * MIB, 2 * MIB, 2 * MIB, 0);
    assert_stat(stats.active_bytes[kind], 0, 512, 512, 512);
    assert_stat(stats.inactive_split_bytes[kind], 0, 2 * MIB - 512, 2 * MIB - 512, 2 * MIB - 512);
    assert_stat(stats.requested_bytes[kind], 0, 100, 100, 100);
  }

  assert_ok(openreg_cache_empty(0));
  stats = stats_of(0);
  assert_stat(stats.segment[ALL], 0, 1, 1, 1);
  assert_stat(stats.reserved_bytes[ALL], 0, 2 * MIB, 2 * MIB, 2 * MIB);
  assert_int_equal(stats.device_frees, 1);
}

/* A hole is allocated and freed six times, without reading the statistics in between. */
static void a_block_that_comes_and_goes_is_counted_each_time(void **state) {
  (void)state;
  openreg_block *hole = take(0, 0, 1024), *wall = take(0, 0, 512);
  const int64_t first = 2 * MIB - 1024, rest = first - 512, top = rest + 1024;
  for (int i = 0; i < 6; i++) {
    openreg_block_free(hole);
    hole = take(0, 0, 1024);
  }
  openreg_memory_stats stats = stats_of(0);
  for (int kind = ALL; kind <= SMALL; kind++) {
    assert_stat(stats.allocation[kind], 2, 2, 8, 6);
    assert_stat(stats.active_bytes[kind], 1536, 1536, 7 * 1024 + 512, 6 * 1024);
    assert_stat(stats.inactive_split[kind], 1, 2, 7, 6);
    assert_stat(stats.inactive_split_bytes[kind], rest, top, first + 6 * 1024, 512 + 6 * 1024);
  }
  openreg_block_free(hole);
  openreg_block_free(wall);
}

/* A request that needs a whole segment shows what counts as split and what does not. */
static void one_large_block_that_is_not_split(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 13 * MIB);
  openreg_memory_stats stats = stats_of(0);
  for (int kind = ALL; kind <= LARGE; kind += LARGE) {
    assert_stat(stats.allocation[kind], 1, 1, 1, 0);
    assert_stat(stats.segment[kind], 1, 1, 1, 0);
    assert_stat(stats.active[kind], 1, 1, 1, 0);
    assert_stat(stats.inactive_split[kind], 0, 0, 0, 0);
    assert_stat(stats.allocated_bytes[kind], 14 * MIB, 14 * MIB, 14 * MIB, 0);
    assert_stat(stats.reserved_bytes[kind], 14 * MIB, 14 * MIB, 14 * MIB, 0);
    assert_stat(stats.active_bytes[kind], 14 * MIB, 14 * MIB, 14 * MIB, 0);
    assert_stat(stats.inactive_split_bytes[kind], 0, 0, 0, 0);
    assert_stat(stats.requested_bytes[kind], 13 * MIB, 13 * MIB, 13 * MIB, 0);
  }
  assert_stat(stats.allocation[SMALL], 0, 0, 0, 0);
  openreg_block_free(block);
}

/* The peaks of the kinds occurred at different times: 4 MiB and 1 MiB were never held at once. */
static void the_peak_of_all_is_not_the_sum_of_the_peaks(void **state) {
  (void)state;
  openreg_block_free(take(0, 0, 4 * MIB));
  openreg_block *small = take(0, 0, MIB), *large = take(0, 0, 2 * MIB);
  openreg_memory_stats stats = stats_of(0);
  assert_stat(stats.allocated_bytes[ALL], 3 * MIB, 4 * MIB, 7 * MIB, 4 * MIB);
  assert_stat(stats.allocated_bytes[SMALL], MIB, MIB, MIB, 0);
  assert_stat(stats.allocated_bytes[LARGE], 2 * MIB, 4 * MIB, 6 * MIB, 4 * MIB);
  assert_stat(stats.allocation[ALL], 2, 2, 3, 1);
  openreg_block_free(small);
  openreg_block_free(large);
}

static void resetting_peaks_sets_them_to_what_is_current(void **state) {
  (void)state;
  openreg_block *kept = take(0, 0, 512);
  openreg_block_free(take(0, 0, 4 * MIB));
  assert_int_equal(stats_of(0).allocated_bytes[ALL].peak, 4 * MIB + 512);
  assert_ok(openreg_memory_reset_peak(0));
  openreg_memory_stats stats = stats_of(0);
  assert_stat(stats.allocated_bytes[ALL], 512, 512, 4 * MIB + 512, 4 * MIB);
  assert_stat(stats.allocated_bytes[LARGE], 0, 0, 4 * MIB, 4 * MIB);
  assert_int_equal(stats.reserved_bytes[ALL].peak, 22 * MIB);
  openreg_block_free(kept);
}

static void resetting_accumulated_sums_clears_counters_too(void **state) {
  (void)state;
  openreg_block *kept = take(0, 0, 512);
  openreg_memory_settings settings = default_settings();
  openreg_block_free(take(0, 0, 3 * MIB));
  refused(0, 0, CAPACITY);
  settings.throws_on_oom = true;
  set_settings(settings);
  refused(0, 0, CAPACITY);
  openreg_memory_stats before = stats_of(0);
  assert_int_equal(before.alloc_retries, 1);
  assert_int_equal(before.ooms, 1);
  assert_int_equal(before.oom_rejections, 1);
  assert_int_equal(before.device_allocs, 2);
  assert_int_equal(before.device_frees, 1);
  assert_int_equal(before.stream_syncs, 1);
  assert_ok(openreg_memory_reset_accumulated(0));
  openreg_memory_stats stats = stats_of(0);
  assert_stat(stats.allocated_bytes[ALL], 512, 3 * MIB + 512, 0, 0);
  assert_stat(stats.segment[SMALL], 1, 1, 0, 0);
  assert_int_equal(stats.alloc_retries, 0);
  assert_int_equal(stats.ooms, 0);
  assert_int_equal(stats.oom_rejections, 0);
  assert_int_equal(stats.device_allocs, 0);
  assert_int_equal(stats.device_frees, 0);
  assert_int_equal(stats.stream_syncs, 0);
  openreg_block_free(kept);
  stats = stats_of(0);
  assert_stat(stats.allocated_bytes[ALL], 0, 3 * MIB + 512, 0, 512);
}

static void devices_are_counted_apart(void **state) {
  (void)state;
  openreg_memory_stats before = stats_of(0);
  openreg_block *block = take(1, 0, 512);
  openreg_memory_stats after = stats_of(0);
  assert_memory_equal(&before, &after, sizeof before);
  assert_int_equal(stats_of(1).allocation[ALL].current, 1);
  openreg_block_free(block);
}

static void bad_arguments_are_refused(void **state) {
  (void)state;
  openreg_memory_stats stats;
  static const int devices[] = {-1, TEST_DEVICES, OPENREG_MAX_DEVICES};
  memset(&stats, 0x5A, sizeof stats);
  for (int i = 0; i < 3; i++) {
    assert_status(openreg_memory_get_stats(devices[i], &stats), OPENREG_INVALID_DEVICE);
    assert_status(openreg_memory_reset_peak(devices[i]), OPENREG_INVALID_DEVICE);
    assert_status(openreg_memory_reset_accumulated(devices[i]), OPENREG_INVALID_DEVICE);
    assert_false(openreg_memory_is_valid(devices[i]));
  }
  assert_int_equal(((unsigned char *)&stats)[0], 0x5A);
  assert_status(openreg_memory_get_stats(0, NULL), OPENREG_INVALID_ARGUMENT);
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(one_small_block),
      ON_EMPTY_DEVICES(one_large_block_that_is_not_split),
      ON_EMPTY_DEVICES(a_block_that_comes_and_goes_is_counted_each_time),
      ON_EMPTY_DEVICES(the_peak_of_all_is_not_the_sum_of_the_peaks),
      ON_EMPTY_DEVICES(resetting_peaks_sets_them_to_what_is_current),
      ON_EMPTY_DEVICES(resetting_accumulated_sums_clears_counters_too),
      ON_EMPTY_DEVICES(devices_are_counted_apart),
      ON_EMPTY_DEVICES(bad_arguments_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
