/* test_reclaim.c: which memory is released to the device, when, and in which order. */
#include "support.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALL = OPENREG_POOL_ALL };

static int64_t reserved(void) {
  return stats_of(0).reserved_bytes[ALL].current;
}

/* ---- emptying -------------------------------------------------------------------------------- */

/* Counts the committed pages of a block. */
static size_t committed_pages(void *address, size_t bytes) {
  size_t pages = bytes / (size_t)sysconf(_SC_PAGESIZE), count = 0;
  unsigned char *resident = malloc(pages);
  assert_int_equal(mincore(openreg_kernel_view(address), bytes, resident), 0);
  for (size_t i = 0; i < pages; i++)
    count += resident[i] & 1;
  free(resident);
  return count;
}

static void emptying_releases_ledger_bytes_and_pages(void **state) {
  (void)state;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  openreg_block *block = take(0, 0, 12 * MIB);
  char *address = block->address;
  assert_ok(openreg_fill(address, 7, 12 * MIB));
  assert_int_equal(committed_pages(address, 12 * MIB), 12 * MIB / page);
  openreg_block_free(block);
  assert_int_equal(committed_pages(address, 12 * MIB), 12 * MIB / page);
  assert_int_equal(ledger_free(0), CAPACITY - 12 * MIB);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(committed_pages(address, 12 * MIB), 0);
  assert_int_equal(ledger_free(0), CAPACITY);
}

static void emptying_leaves_segments_alone_that_are_in_use(void **state) {
  (void)state;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  openreg_block *kept = take(0, 0, 3 * MIB), *freed = take(0, 0, 7 * MIB);
  char *address = kept->address;
  assert_ok(openreg_fill(address, 7, 10 * MIB));
  openreg_block_free(freed);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(reserved(), 20 * MIB);
  assert_int_equal(committed_pages(address, 10 * MIB), 10 * MIB / page);
  const unsigned char *bytes = openreg_kernel_view(address);
  for (size_t i = 0; i < 3 * MIB; i += page)
    assert_int_equal(bytes[i], 7);
  openreg_block_free(kept);
}

static void emptying_reaches_every_stream_and_both_pools(void **state) {
  (void)state;
  for (int stream = 0; stream < 2; stream++) {
    openreg_block_free(take(0, stream, 512));
    openreg_block_free(take(0, stream, 3 * MIB));
  }
  assert_int_equal(reserved(), 2 * 22 * MIB);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(ledger_free(0), CAPACITY);
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.segment[ALL].current, 0);
  assert_int_equal(stats.device_frees, 4);
}

static void emptying_counts_as_a_wait_each_time(void **state) {
  (void)state;
  assert_ok(openreg_cache_empty(0));
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(stats_of(0).stream_syncs, 2);
  assert_int_equal(stats_of(0).alloc_retries, 0);
}

static void emptying_one_device_leaves_the_other(void **state) {
  (void)state;
  openreg_block_free(take(0, 0, 512));
  openreg_block_free(take(1, 0, 512));
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(reserved(), 0);
  assert_int_equal(stats_of(1).reserved_bytes[ALL].current, 2 * MIB);
}

static void emptying_a_device_that_does_not_exist_is_refused(void **state) {
  (void)state;
  assert_status(openreg_cache_empty(-1), OPENREG_INVALID_DEVICE);
  assert_status(openreg_cache_empty(TEST_DEVICES), OPENREG_INVALID_DEVICE);
}

/* ---- running out of memory ------------------------------------------------------------------- */

static void a_request_that_does_not_fit_gets_the_cache_of_all_streams(void **state) {
  (void)state;
  openreg_block_free(take(0, 1, 512));
  openreg_block_free(take(0, 1, 40 * MIB));
  openreg_block *block = take(0, 2, CAPACITY);
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.alloc_retries, 1);
  assert_int_equal(stats.stream_syncs, 1);
  assert_int_equal(stats.ooms, 0);
  assert_int_equal(stats.device_frees, 2);
  assert_int_equal(stats.reserved_bytes[ALL].current, CAPACITY);
  openreg_block_free(block);
}

static void under_a_limit_the_cache_is_released_too(void **state) {
  (void)state;
  assert_ok(openreg_memory_set_fraction(0, 0.25));
  openreg_block_free(take(0, 1, 16 * MIB));
  openreg_block_free(take(0, 2, 16 * MIB));
  assert_int_equal(stats_of(0).alloc_retries, 1);
}

/* The retry counts though there was nothing to release. */
static void running_out_leaves_the_rest_as_it_was(void **state) {
  (void)state;
  openreg_block *held = take(0, 0, 40 * MIB);
  openreg_memory_stats before = stats_of(0);
  refused(0, 0, 30 * MIB);
  openreg_memory_stats after = stats_of(0);
  assert_int_equal(after.ooms, 1);
  assert_int_equal(after.alloc_retries, 1);
  assert_int_equal(after.stream_syncs, 1);
  after.ooms = after.alloc_retries = after.stream_syncs = 0;
  assert_memory_equal(&before, &after, sizeof before);
  assert_true(openreg_memory_is_valid(0));
  openreg_block_free(take(0, 0, 24 * MIB));
  openreg_block_free(held);
}

/* ---- garbage --------------------------------------------------------------------------------- */

static void collect_from(double threshold, double fraction) {
  openreg_memory_settings settings = default_settings();
  settings.garbage_collection_threshold = threshold;
  set_settings(settings);
  assert_ok(openreg_memory_set_fraction(0, fraction));
}

/* 36 of the allowed 48 MiB are reserved, more than half. */
static void garbage_is_released_before_a_segment_is_reserved(void **state) {
  (void)state;
  collect_from(0.5, 0.75);
  openreg_block *garbage = take(0, 0, 12 * MIB), *held = take(0, 0, 24 * MIB);
  openreg_block_free(garbage);
  openreg_block *block = take(0, 1, 12 * MIB);
  assert_int_equal(place_of(block), 0);
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.device_frees, 1);
  assert_int_equal(stats.reserved_bytes[ALL].current, 36 * MIB);
  assert_int_equal(stats.alloc_retries, 0);
  assert_int_equal(stats.stream_syncs, 0);
  openreg_block_free(held);
  openreg_block_free(block);
}

static void small_requests_collect_large_garbage(void **state) {
  (void)state;
  collect_from(0.5, 0.75);
  openreg_block_free(take(0, 0, 26 * MIB));
  openreg_block *block = take(0, 0, 512);
  assert_int_equal(reserved(), 2 * MIB);
  openreg_block_free(block);
}

static void up_to_the_threshold_nothing_is_garbage(void **state) {
  (void)state;
  collect_from(0.5, 0.75);
  openreg_block_free(take(0, 0, 24 * MIB));
  openreg_block *block = take(0, 1, 12 * MIB);
  assert_int_equal(reserved(), 36 * MIB);
  openreg_block_free(block);
}

static void without_a_limit_nothing_is_garbage(void **state) {
  (void)state;
  collect_from(0.1, 1);
  openreg_block_free(take(0, 0, 30 * MIB));
  openreg_block *block = take(0, 1, 30 * MIB);
  assert_int_equal(stats_of(0).device_frees, 0);
  openreg_block_free(block);
}

static void small_and_split_segments_are_no_garbage(void **state) {
  (void)state;
  collect_from(0.1, 0.9);
  openreg_block *held = take(0, 0, 3 * MIB), *freed = take(0, 0, 3 * MIB);
  openreg_block_free(freed);
  openreg_block_free(take(0, 0, 512));
  openreg_block *block = take(0, 1, 12 * MIB);
  assert_int_equal(stats_of(0).device_frees, 0);
  openreg_block_free(held);
  openreg_block_free(block);
}

/* Two free segments of 10 MiB; one is older by one search. 30 MiB are reserved. 40 percent of the
 * allowed 57.6 are 23.04, so 6.96 must go. */
static void only_garbage_of_at_least_average_age_is_released(void **state) {
  (void)state;
  collect_from(0.4, 0.9);
  openreg_block *old = take(0, 0, 10 * MIB), *young = take(0, 0, 10 * MIB);
  openreg_block *other = take(0, 1, 10 * MIB);
  size_t place = place_of(young);
  openreg_block_free(old);
  openreg_block_free(other);
  other = take(0, 1, 10 * MIB);
  openreg_block_free(young);
  openreg_block *block = take(0, 2, 12 * MIB);
  assert_int_equal(reserved(), 32 * MIB);
  young = take(0, 0, 10 * MIB);
  assert_int_equal(place_of(young), place);
  openreg_block_free(young);
  openreg_block_free(other);
  openreg_block_free(block);
}

/* The same with 10 percent: the younger one goes in a second round. */
static void rounds_go_on_until_enough_is_collected(void **state) {
  (void)state;
  collect_from(0.1, 0.9);
  openreg_block *old = take(0, 0, 10 * MIB), *young = take(0, 0, 10 * MIB);
  openreg_block *other = take(0, 1, 10 * MIB);
  openreg_block_free(old);
  openreg_block_free(other);
  other = take(0, 1, 10 * MIB);
  openreg_block_free(young);
  openreg_block *block = take(0, 2, 12 * MIB);
  assert_int_equal(reserved(), 22 * MIB);
  openreg_block_free(other);
  openreg_block_free(block);
}

/* Both have the same age, and one would have been enough. */
static void a_round_does_not_stop_half_way(void **state) {
  (void)state;
  collect_from(0.4, 0.9);
  openreg_block *blocks[] = {take(0, 0, 10 * MIB), take(0, 0, 10 * MIB), take(0, 1, 10 * MIB)};
  openreg_block_free(blocks[0]);
  openreg_block_free(blocks[1]);
  openreg_block *block = take(0, 2, 12 * MIB);
  assert_int_equal(reserved(), 22 * MIB);
  openreg_block_free(blocks[2]);
  openreg_block_free(block);
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(emptying_releases_ledger_bytes_and_pages),
      ON_EMPTY_DEVICES(emptying_leaves_segments_alone_that_are_in_use),
      ON_EMPTY_DEVICES(emptying_reaches_every_stream_and_both_pools),
      ON_EMPTY_DEVICES(emptying_counts_as_a_wait_each_time),
      ON_EMPTY_DEVICES(emptying_one_device_leaves_the_other),
      ON_EMPTY_DEVICES(emptying_a_device_that_does_not_exist_is_refused),
      ON_EMPTY_DEVICES(a_request_that_does_not_fit_gets_the_cache_of_all_streams),
      ON_EMPTY_DEVICES(under_a_limit_the_cache_is_released_too),
      ON_EMPTY_DEVICES(running_out_leaves_the_rest_as_it_was),
      ON_EMPTY_DEVICES(garbage_is_released_before_a_segment_is_reserved),
      ON_EMPTY_DEVICES(small_requests_collect_large_garbage),
      ON_EMPTY_DEVICES(up_to_the_threshold_nothing_is_garbage),
      ON_EMPTY_DEVICES(without_a_limit_nothing_is_garbage),
      ON_EMPTY_DEVICES(small_and_split_segments_are_no_garbage),
      ON_EMPTY_DEVICES(only_garbage_of_at_least_average_age_is_released),
      ON_EMPTY_DEVICES(rounds_go_on_until_enough_is_collected),
      ON_EMPTY_DEVICES(a_round_does_not_stop_half_way),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
