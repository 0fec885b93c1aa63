/* test_expandable.c: segments that are address ranges, mapped in pages as needed.
 *
 * With a capacity of 64 MiB, a range of the large pool has 80 MiB in pages of 20, and a range of
 * the small pool 72 MiB in pages of 2.
 */
#include "support.h"

enum { ALL = OPENREG_POOL_ALL, SMALL = OPENREG_POOL_SMALL, LARGE = OPENREG_POOL_LARGE };

static void turn(bool on) {
  openreg_memory_settings settings = default_settings();
  settings.expandable_segments = on;
  set_settings(settings);
}

static int expandable(void **state) {
  int result = devices_reset(state);
  turn(true);
  return result;
}

static int64_t reserved(void) {
  return stats_of(0).reserved_bytes[ALL].current;
}

/* ---- mapping --------------------------------------------------------------------------------- */

static void a_first_request_maps_whole_pages(void **state) {
  (void)state;
  openreg_block *large = take(0, 0, 3 * MIB), *small = take(0, 0, 100);
  assert_int_equal(large->bytes, 3 * MIB);
  assert_int_equal(small->bytes, 512);
  openreg_memory_stats stats = stats_of(0);
  assert_stat(stats.reserved_bytes[LARGE], 20 * MIB, 20 * MIB, 20 * MIB, 0);
  assert_stat(stats.reserved_bytes[SMALL], 2 * MIB, 2 * MIB, 2 * MIB, 0);
  assert_int_equal(stats.device_allocs, 2);
  assert_int_equal(ledger_free(0), CAPACITY - 22 * MIB);
  openreg_block_free(large);
  openreg_block_free(small);
}

static void expandable_segments_count_as_no_segments_and_no_splits(void **state) {
  (void)state;
  openreg_block *first = take(0, 0, 3 * MIB), *second = take(0, 0, 3 * MIB);
  openreg_block_free(first);
  openreg_memory_stats stats = stats_of(0);
  assert_stat(stats.segment[ALL], 0, 0, 0, 0);
  assert_stat(stats.inactive_split[ALL], 0, 0, 0, 0);
  assert_stat(stats.inactive_split_bytes[ALL], 0, 0, 0, 0);
  assert_stat(stats.active_bytes[ALL], 3 * MIB, 6 * MIB, 6 * MIB, 3 * MIB);
  openreg_block_free(second);
}

static void a_request_of_several_pages_is_one_mapping(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 45 * MIB);
  assert_int_equal(reserved(), 60 * MIB);
  assert_int_equal(stats_of(0).device_allocs, 1);
  openreg_block_free(block);
}

/* The first page of 20 MiB has 5 left; one more page is mapped. */
static void a_free_end_is_extended_by_the_missing_bytes(void **state) {
  (void)state;
  openreg_block *low = take(0, 0, 15 * MIB), *high = take(0, 0, 10 * MIB);
  assert_int_equal(place_of(high), 15 * MIB);
  assert_int_equal(reserved(), 40 * MIB);
  assert_int_equal(stats_of(0).device_allocs, 2);
  openreg_block_free(low);
  openreg_block_free(high);
  openreg_block *whole = take(0, 0, 40 * MIB); /* they have merged */
  assert_int_equal(place_of(whole), 0);
  assert_int_equal(stats_of(0).device_allocs, 2);
  openreg_block_free(whole);
}

static void pages_are_as_long_as_large_segments(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.expandable_segments = true;
  settings.large_segment_bytes = 12 * MIB;
  set_settings(settings);
  openreg_block_free(take(0, 0, 3 * MIB));
  assert_int_equal(reserved(), 12 * MIB);
}

static void each_stream_and_pool_has_a_range_of_its_own(void **state) {
  (void)state;
  openreg_block *blocks[] = {take(0, 0, 3 * MIB), take(0, 0, 512), take(0, 5, 512),
                             take(0, 0, 3 * MIB)};
  assert_int_equal(place_of(blocks[0]), 0);
  assert_int_equal(place_of(blocks[1]), 80 * MIB);
  assert_int_equal(place_of(blocks[2]), (80 + 72) * MIB);
  assert_int_equal(place_of(blocks[3]), 3 * MIB);
  for (int i = 0; i < 4; i++)
    openreg_block_free(blocks[i]);
}

static void a_memory_pool_has_a_range_of_its_own(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false);
  openreg_block *inside = take_in(mempool, 0, 0, 3 * MIB), *outside = take(0, 0, 3 * MIB);
  assert_int_equal(place_of(inside), 0);
  assert_int_equal(place_of(outside), 80 * MIB);
  openreg_block_free(inside);
  openreg_block_free(outside);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(reserved(), 20 * MIB);
  assert_ok(openreg_mempool_release(mempool));
  assert_ok(openreg_mempool_empty(mempool));
  assert_int_equal(reserved(), 0);
}

/* 60 of 64 MiB are mapped, and the last 10 are free: a request for 15 would need another page of
 * 20. */
static void a_mapping_that_fails_maps_nothing(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 50 * MIB);
  refused(0, 0, 15 * MIB);
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.reserved_bytes[ALL].current, 60 * MIB);
  assert_int_equal(stats.device_allocs, 1);
  assert_int_equal(stats.alloc_retries, 1);
  openreg_block *end = take(0, 0, 10 * MIB);
  openreg_block_free(end);
  openreg_block_free(block);
}

/* 20 MiB are reserved, and 10 more count as a segment of 10. That is within 32, though a page of 20
 * is mapped. */
static void the_limit_is_compared_with_the_size_of_an_ordinary_segment(void **state) {
  (void)state;
  assert_ok(openreg_memory_set_fraction(0, 0.5));
  openreg_block *low = take(0, 0, 15 * MIB), *high = take(0, 0, 10 * MIB);
  assert_int_equal(reserved(), 40 * MIB);
  refused(0, 1, 512);
  openreg_block_free(low);
  openreg_block_free(high);
}

/* ---- best fit -------------------------------------------------------------------------------- */

/* [0, 8) and [14, 20) are free. The latter is smaller, but can be extended. */
static void a_block_that_cannot_grow_is_preferred(void **state) {
  (void)state;
  openreg_block *hole = take(0, 0, 8 * MIB), *wall = take(0, 0, 6 * MIB);
  openreg_block_free(hole);
  openreg_block *block = take(0, 0, 5 * MIB);
  assert_int_equal(place_of(block), 0);
  openreg_block_free(block);
  openreg_block_free(wall);
}

static void switched_off_their_free_blocks_are_not_used(void **state) {
  (void)state;
  openreg_block *held = take(0, 0, 3 * MIB);
  turn(false);
  openreg_block *block = take(0, 0, 3 * MIB);
  assert_int_equal(place_of(block), 80 * MIB);
  assert_int_equal(stats_of(0).segment[LARGE].current, 1);
  openreg_block_free(block);
  assert_ok(openreg_cache_empty(0));
  turn(true);
  openreg_block *same = take(0, 0, 3 * MIB);
  assert_int_equal(place_of(same), 3 * MIB);
  openreg_block_free(same);
  openreg_block_free(held);
}

static void switched_on_blocks_of_ordinary_segments_are_used(void **state) {
  (void)state;
  turn(false);
  openreg_block_free(take(0, 0, 12 * MIB));
  turn(true);
  openreg_block *block = take(0, 0, 12 * MIB);
  assert_int_equal(stats_of(0).device_allocs, 1);
  openreg_block_free(block);
}

/* ---- unmapping ------------------------------------------------------------------------------- */

/* [0, 30) is free and [30, 35) allocated. Of the 40 mapped MiB, the first page is unmapped. */
static void emptying_unmaps_the_whole_pages_of_free_blocks(void **state) {
  (void)state;
  openreg_block *low = take(0, 0, 30 * MIB), *held = take(0, 0, 5 * MIB);
  openreg_block_free(low);
  assert_ok(openreg_cache_empty(0));
  openreg_memory_stats stats = stats_of(0);
  assert_stat(stats.reserved_bytes[LARGE], 20 * MIB, 40 * MIB, 40 * MIB, 20 * MIB);
  assert_int_equal(stats.device_frees, 1);
  assert_int_equal(ledger_free(0), CAPACITY - 20 * MIB);
  assert_true(openreg_memory_is_valid(0));
  openreg_block_free(held);
}

/* The same situation: 25 MiB fit into the unmapped page and the 10 MiB behind it. */
static void memory_is_mapped_at_the_lowest_place_with_room(void **state) {
  (void)state;
  openreg_block *low = take(0, 0, 30 * MIB), *held = take(0, 0, 5 * MIB);
  openreg_block_free(low);
  assert_ok(openreg_cache_empty(0));
  openreg_block *block = take(0, 0, 25 * MIB);
  assert_int_equal(place_of(block), 0);
  assert_int_equal(reserved(), 40 * MIB);
  openreg_block_free(block);
  openreg_block_free(held);
}

/* Pages of 10 in ranges of 80: 30 at the bottom and 40 at the top are unmapped, and 45 are
 * requested. */
static void where_no_range_has_room_there_is_another(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.expandable_segments = true;
  settings.large_segment_bytes = 12 * MIB;
  set_settings(settings);
  openreg_block *low = take(0, 0, 36 * MIB), *held = take(0, 0, 12 * MIB);
  openreg_block_free(low);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(reserved(), 12 * MIB);
  openreg_block *block = take(0, 0, 44 * MIB);
  assert_int_equal(place_of(block), 72 * MIB);
  assert_int_equal(reserved(), 60 * MIB);
  openreg_block_free(block);
  openreg_block_free(held);
}

static void a_range_without_pages_is_gone(void **state) {
  (void)state;
  openreg_block_free(take(0, 0, 30 * MIB));
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(reserved(), 0);
  turn(false);
  openreg_block *block = take(0, 0, 512); /* at its old address */
  assert_int_equal(place_of(block), 0);
  openreg_block_free(block);
}

/* One block covers pages of two mappings: they are unmapped together. */
static void pages_that_lie_together_are_unmapped_together(void **state) {
  (void)state;
  openreg_block *low = take(0, 0, 20 * MIB), *high = take(0, 0, 20 * MIB);
  openreg_block_free(low);
  openreg_block_free(high);
  assert_int_equal(stats_of(0).device_allocs, 2);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(stats_of(0).device_frees, 1);
}

static void a_request_that_does_not_fit_gets_the_pages_of_others(void **state) {
  (void)state;
  openreg_block_free(take(0, 1, 50 * MIB));
  openreg_block *block = take(0, 0, 50 * MIB);
  assert_int_equal(stats_of(0).alloc_retries, 1);
  assert_int_equal(reserved(), 60 * MIB);
  openreg_block_free(block);
}

static void a_snapshot_shows_each_mapped_part(void **state) {
  (void)state;
  openreg_block *low = take(0, 0, 20 * MIB), *hole = take(0, 0, 20 * MIB),
                *high = take(0, 0, 3 * MIB);
  openreg_block_free(hole);
  assert_ok(openreg_cache_empty(0));
  openreg_memory_snapshot snapshot = snapshot_of(0);
  assert_int_equal(snapshot.segment_count, 2);
  assert_int_equal(snapshot.segments[0].address, (uintptr_t)low->address);
  assert_int_equal(snapshot.segments[1].address, (uintptr_t)high->address);
  for (int i = 0; i < 2; i++) {
    assert_true(snapshot.segments[i].is_expandable);
    assert_int_equal(snapshot.segments[i].bytes, 20 * MIB);
    assert_int_equal(snapshot.segments[i].block_count, i + 1);
  }
  openreg_memory_free_snapshot(&snapshot);
  assert_snapshot_agrees(0);
  openreg_block_free(low);
  openreg_block_free(high);
}

#define ON_EXPANDABLE(test) cmocka_unit_test_setup_teardown(test, expandable, devices_check)

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EXPANDABLE(a_first_request_maps_whole_pages),
      ON_EXPANDABLE(expandable_segments_count_as_no_segments_and_no_splits),
      ON_EXPANDABLE(a_request_of_several_pages_is_one_mapping),
      ON_EXPANDABLE(a_free_end_is_extended_by_the_missing_bytes),
      ON_EXPANDABLE(pages_are_as_long_as_large_segments),
      ON_EXPANDABLE(each_stream_and_pool_has_a_range_of_its_own),
      ON_EXPANDABLE(a_memory_pool_has_a_range_of_its_own),
      ON_EXPANDABLE(a_mapping_that_fails_maps_nothing),
      ON_EXPANDABLE(the_limit_is_compared_with_the_size_of_an_ordinary_segment),
      ON_EXPANDABLE(a_block_that_cannot_grow_is_preferred),
      ON_EXPANDABLE(switched_off_their_free_blocks_are_not_used),
      ON_EXPANDABLE(switched_on_blocks_of_ordinary_segments_are_used),
      ON_EXPANDABLE(emptying_unmaps_the_whole_pages_of_free_blocks),
      ON_EXPANDABLE(memory_is_mapped_at_the_lowest_place_with_room),
      ON_EXPANDABLE(where_no_range_has_room_there_is_another),
      ON_EXPANDABLE(a_range_without_pages_is_gone),
      ON_EXPANDABLE(pages_that_lie_together_are_unmapped_together),
      ON_EXPANDABLE(a_request_that_does_not_fit_gets_the_pages_of_others),
      ON_EXPANDABLE(a_snapshot_shows_each_mapped_part),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
