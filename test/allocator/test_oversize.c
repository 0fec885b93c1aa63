/* test_oversize.c: blocks of at least max_split_bytes are counted, and released before the rest of
 * the cache. test_pool.c and test_split.c test which requests they serve. */
#include "support.h"

enum { ALL = OPENREG_POOL_ALL };

static void set_max_split(size_t bytes) {
  openreg_memory_settings settings = default_settings();
  settings.max_split_bytes = bytes;
  set_settings(settings);
}

static void oversize_blocks_and_segments_are_counted(void **state) {
  (void)state;
  set_max_split(20 * MIB);
  openreg_block *large = take(0, 0, 20 * MIB), *small = take(0, 0, 3 * MIB);
  openreg_memory_stats stats = stats_of(0);
  assert_stat(stats.oversize_allocations, 1, 1, 1, 0);
  assert_stat(stats.oversize_segments, 2, 2, 2, 0);
  openreg_block_free(large);
  openreg_block_free(small);
  assert_ok(openreg_cache_empty(0));
  stats = stats_of(0);
  assert_stat(stats.oversize_allocations, 0, 1, 1, 1);
  assert_stat(stats.oversize_segments, 0, 2, 2, 2);
}

/* 40 MiB are cached, which is too large for a request of 20; 14 are left. */
static void an_oversize_block_that_is_too_large_is_released(void **state) {
  (void)state;
  set_max_split(20 * MIB);
  openreg_block_free(take(0, 0, 40 * MIB));
  openreg_block *held = take(0, 0, 10 * MIB), *block = take(0, 0, 20 * MIB);
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.reserved_bytes[ALL].current, 30 * MIB);
  assert_int_equal(stats.device_frees, 1);
  assert_int_equal(stats.alloc_retries, 0);
  assert_int_equal(stats.stream_syncs, 0);
  openreg_block_free(held);
  openreg_block_free(block);
}

/* 22 and 20 MiB are cached, and 20 are left: 42 need both. The small pool keeps its segment. */
static void oversize_blocks_are_released_largest_first_until_it_fits(void **state) {
  (void)state;
  set_max_split(20 * MIB);
  openreg_block *one = take(0, 0, 20 * MIB), *other = take(0, 0, 22 * MIB);
  openreg_block_free(one);
  openreg_block_free(other);
  openreg_block_free(take(0, 0, 512));
  openreg_block *block = take(0, 0, 42 * MIB);
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.reserved_bytes[ALL].current, 44 * MIB);
  assert_int_equal(stats.alloc_retries, 0);
  openreg_block_free(block);
}

/* 28 MiB are released, which leaves 34 free, and 50 are requested. */
static void oversize_blocks_are_released_even_if_not_enough(void **state) {
  (void)state;
  set_max_split(20 * MIB);
  openreg_block_free(take(0, 0, 28 * MIB));
  openreg_block *held = take(0, 1, 30 * MIB);
  refused(0, 0, 50 * MIB);
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.device_frees, 1);
  assert_int_equal(stats.alloc_retries, 1);
  openreg_block_free(held);
}

static void oversize_blocks_of_other_streams_wait_for_the_last_attempt(void **state) {
  (void)state;
  set_max_split(20 * MIB);
  openreg_block_free(take(0, 1, 40 * MIB));
  openreg_block *block = take(0, 0, 26 * MIB);
  assert_int_equal(stats_of(0).alloc_retries, 1);
  openreg_block_free(block);
}

/* Nor do smaller ones help, which exist for the stream above the limit: 20 and 22 MiB would be
 * enough for 42. */
static void oversize_blocks_of_two_streams_are_not_added_up(void **state) {
  (void)state;
  set_max_split(20 * MIB);
  openreg_block_free(take(0, 0, 22 * MIB));
  openreg_block_free(take(0, 1, 20 * MIB));
  openreg_block *block = take(0, 1, 42 * MIB);
  assert_int_equal(stats_of(0).alloc_retries, 1);
  openreg_block_free(block);
}

/* ---- a lower limit --------------------------------------------------------------------------- */

/* As on CUDA: a block that was not oversize when it was allocated may be when it is freed. */
static void counts_of_oversize_blocks_may_be_negative(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 40 * MIB);
  set_max_split(20 * MIB);
  openreg_block_free(block);
  assert_stat(stats_of(0).oversize_allocations, -1, 0, 0, 1);
  assert_ok(openreg_cache_empty(0));
  assert_stat(stats_of(0).oversize_segments, -1, 0, 0, 1);
}

/* 10 of 40 MiB are allocated. CUDA fails here. */
static void a_split_block_is_not_released_as_oversize(void **state) {
  (void)state;
  openreg_block_free(take(0, 0, 40 * MIB));
  openreg_block *block = take(0, 0, 10 * MIB);
  assert_ok(openreg_fill(block->address, 7, 10 * MIB));
  set_max_split(20 * MIB);
  refused(0, 0, 52 * MIB);
  assert_true(openreg_memory_is_valid(0));
  assert_int_equal(stats_of(0).reserved_bytes[ALL].current, 40 * MIB);
  assert_int_equal(*(unsigned char *)openreg_kernel_view(block->address), 7);
  openreg_block_free(block);
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(oversize_blocks_and_segments_are_counted),
      ON_EMPTY_DEVICES(an_oversize_block_that_is_too_large_is_released),
      ON_EMPTY_DEVICES(oversize_blocks_are_released_largest_first_until_it_fits),
      ON_EMPTY_DEVICES(oversize_blocks_are_released_even_if_not_enough),
      ON_EMPTY_DEVICES(oversize_blocks_of_other_streams_wait_for_the_last_attempt),
      ON_EMPTY_DEVICES(oversize_blocks_of_two_streams_are_not_added_up),
      ON_EMPTY_DEVICES(counts_of_oversize_blocks_may_be_negative),
      ON_EMPTY_DEVICES(a_split_block_is_not_released_as_oversize),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
