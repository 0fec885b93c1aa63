/* test_split.c: which part of a block a request gets, what happens to the rest, and how freed
 * blocks merge. */
#include "support.h"

enum { ALL = OPENREG_POOL_ALL, SMALL = OPENREG_POOL_SMALL, LARGE = OPENREG_POOL_LARGE };

static void assert_splits(int kind, int64_t count, int64_t bytes) {
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.inactive_split[kind].current, count);
  assert_int_equal(stats.inactive_split_bytes[kind].current, bytes);
}

/* ---- splitting ------------------------------------------------------------------------------- */

static void a_request_gets_the_front_of_a_block(void **state) {
  (void)state;
  openreg_block *first = take(0, 0, 512), *second = take(0, 0, 1000);
  assert_int_equal(place_of(first), 0);
  assert_int_equal(place_of(second), 512);
  assert_splits(SMALL, 1, 2 * MIB - 1536);
  openreg_block_free(first);
  openreg_block_free(second);
}

static void in_the_small_pool_a_rest_of_512_bytes_is_a_block(void **state) {
  (void)state;
  openreg_block *first = take(0, 0, MIB), *second = take(0, 0, MIB - 512);
  assert_int_equal(second->bytes, MIB - 512);
  assert_splits(SMALL, 1, 512);
  openreg_block *third = take(0, 0, 1);
  assert_int_equal(place_of(third), 2 * MIB - 512);
  assert_splits(SMALL, 0, 0);
  openreg_block_free(first);
  openreg_block_free(second);
  openreg_block_free(third);
}

/* A segment of 12 MiB, with the request that leaves 1 MiB, and with the next smaller one. */
static void in_the_large_pool_a_rest_of_more_than_a_mebibyte_is_a_block(void **state) {
  (void)state;
  openreg_block *whole = take(0, 0, 11 * MIB);
  assert_int_equal(whole->bytes, 12 * MIB);
  assert_splits(LARGE, 0, 0);
  openreg_block_free(whole);
  openreg_block *cut = take(0, 0, 11 * MIB - 512);
  assert_int_equal(cut->bytes, 11 * MIB - 512);
  assert_splits(LARGE, 1, MIB + 512);
  openreg_block_free(cut);
}

static void what_is_not_split_off_counts_as_allocated(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 11 * MIB);
  assert_int_equal(block->requested_bytes, 11 * MIB);
  openreg_memory_stats stats = stats_of(0);
  assert_stat(stats.allocated_bytes[LARGE], 12 * MIB, 12 * MIB, 12 * MIB, 0);
  assert_stat(stats.active_bytes[LARGE], 12 * MIB, 12 * MIB, 12 * MIB, 0);
  assert_stat(stats.requested_bytes[LARGE], 11 * MIB, 11 * MIB, 11 * MIB, 0);
  assert_stat(stats.inactive_split_bytes[LARGE], 0, 0, 0, 0);
  openreg_block_free(block);
}

/* 9 and 9 of 20 MiB leave 2; the request is 512 bytes larger than one. */
static void a_rest_that_is_used_up_is_not_counted_as_split(void **state) {
  (void)state;
  openreg_block *low = take(0, 0, 9 * MIB), *high = take(0, 0, 9 * MIB);
  assert_splits(LARGE, 1, 2 * MIB);
  openreg_block *rest = take(0, 0, MIB + 512);
  assert_int_equal(place_of(rest), 18 * MIB);
  assert_int_equal(rest->bytes, 2 * MIB);
  assert_splits(LARGE, 0, 0);
  assert_int_equal(stats_of(0).allocated_bytes[ALL].current, 20 * MIB);
  openreg_block_free(low);
  openreg_block_free(high);
  openreg_block_free(rest);
}

static void from_max_split_bytes_on_a_request_gets_all_of_a_block(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.max_split_bytes = 24 * MIB;
  set_settings(settings);
  openreg_block_free(take(0, 0, 40 * MIB));
  openreg_block *block = take(0, 0, 24 * MIB);
  assert_int_equal(block->bytes, 40 * MIB);
  assert_int_equal(stats_of(0).segment[ALL].current, 1);
  openreg_block_free(block);
}

static void below_max_split_bytes_a_block_is_split_as_usual(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.max_split_bytes = 40 * MIB + 512;
  set_settings(settings);
  openreg_block_free(take(0, 0, 40 * MIB));
  openreg_block *block = take(0, 0, 25 * MIB);
  assert_int_equal(block->bytes, 25 * MIB);
  assert_splits(LARGE, 1, 15 * MIB);
  openreg_block_free(block);
}

/* The rule of expandable segments applies to any segment. */
static void with_expandable_segments_on_a_large_rest_of_512_bytes_is_a_block(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  openreg_block_free(take(0, 0, 9 * MIB));
  settings.expandable_segments = true;
  set_settings(settings);
  openreg_block *block = take(0, 0, 20 * MIB - 512);
  assert_int_equal(block->bytes, 20 * MIB - 512);
  assert_int_equal(place_of(block), 0);
  assert_splits(LARGE, 1, 512);
  openreg_block_free(block);
}

/* ---- merging --------------------------------------------------------------------------------- */

static void freed_neighbours_become_one_block_in_any_order(void **state) {
  (void)state;
  static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                   {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (int order = 0; order < 6; order++) {
    openreg_block *blocks[3];
    for (int i = 0; i < 3; i++)
      blocks[i] = take(0, 0, 3 * MIB);
    for (int i = 0; i < 3; i++) {
      openreg_block_free(blocks[orders[order][i]]);
      assert_true(openreg_memory_is_valid(0));
    }
    assert_splits(LARGE, 0, 0);
    openreg_block *whole = take(0, 0, 20 * MIB);
    assert_int_equal(place_of(whole), 0);
    openreg_block_free(whole);
  }
  assert_int_equal(stats_of(0).reserved_bytes[ALL].peak, 20 * MIB);
}

/* The middle one of three is freed last, between two free ones; a fourth stays allocated. */
static void the_block_freed_last_is_one_with_its_neighbours(size_t bytes) {
  openreg_block *blocks[3], *wall;
  for (int i = 0; i < 3; i++)
    blocks[i] = take(0, 0, bytes);
  wall = take(0, 0, bytes);
  openreg_block_free(blocks[0]);
  openreg_block_free(blocks[2]);
  openreg_block_free(blocks[1]);
  openreg_memory_stats freed = stats_of(0);
  assert_int_equal(freed.inactive_split[ALL].current, 2);
  for (int i = 0; i < 3; i++) {
    openreg_block *first = take(0, 0, bytes);
    assert_int_equal(place_of(first), 0);
    assert_true(openreg_memory_is_valid(0));
    openreg_block_free(first);
  }
  openreg_memory_stats later = stats_of(0);
  assert_int_equal(later.inactive_split[ALL].current, 2);
  assert_int_equal(later.inactive_split_bytes[ALL].current,
                   freed.inactive_split_bytes[ALL].current);
  openreg_block *whole = take(0, 0, 3 * bytes);
  assert_int_equal(place_of(whole), 0);
  openreg_block_free(whole);
  openreg_block_free(wall);
}

static void a_small_block_freed_last_is_one_with_its_neighbours(void **state) {
  (void)state;
  the_block_freed_last_is_one_with_its_neighbours(4096);
}

static void a_large_block_freed_last_is_one_with_its_neighbours(void **state) {
  (void)state;
  the_block_freed_last_is_one_with_its_neighbours(4 * MIB + MIB / 2); /* 2 of 20 are left */
}

/* Splitting a split block shrinks it: one net change by the size of the request. */
static void split_blocks_are_counted_by_the_net_change_of_an_operation(void **state) {
  (void)state;
  openreg_block *first = take(0, 0, 512), *second = take(0, 0, 1024), *third = take(0, 0, 512);
  openreg_memory_stats stats = stats_of(0);
  const int64_t top = 2 * MIB - 512;
  assert_stat(stats.inactive_split[SMALL], 1, 1, 1, 0);
  assert_stat(stats.inactive_split_bytes[SMALL], 2 * MIB - 2048, top, top, 1536);
  openreg_block_free(second); /* a hole between two allocated blocks */
  stats = stats_of(0);
  assert_stat(stats.inactive_split[SMALL], 2, 2, 2, 0);
  assert_stat(stats.inactive_split_bytes[SMALL], 2 * MIB - 1024, top, top + 1024, 1536);
  openreg_block_free(third); /* joins the hole and the rest */
  stats = stats_of(0);
  assert_stat(stats.inactive_split[SMALL], 1, 2, 2, 1);
  assert_stat(stats.inactive_split_bytes[SMALL], top, top, top + 1536, 1536);
  openreg_block_free(first); /* a whole segment is not split */
  stats = stats_of(0);
  assert_stat(stats.inactive_split[SMALL], 0, 2, 2, 2);
  assert_stat(stats.inactive_split_bytes[SMALL], 0, top, top + 1536, top + 1536);
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(a_request_gets_the_front_of_a_block),
      ON_EMPTY_DEVICES(in_the_small_pool_a_rest_of_512_bytes_is_a_block),
      ON_EMPTY_DEVICES(in_the_large_pool_a_rest_of_more_than_a_mebibyte_is_a_block),
      ON_EMPTY_DEVICES(what_is_not_split_off_counts_as_allocated),
      ON_EMPTY_DEVICES(a_rest_that_is_used_up_is_not_counted_as_split),
      ON_EMPTY_DEVICES(from_max_split_bytes_on_a_request_gets_all_of_a_block),
      ON_EMPTY_DEVICES(below_max_split_bytes_a_block_is_split_as_usual),
      ON_EMPTY_DEVICES(with_expandable_segments_on_a_large_rest_of_512_bytes_is_a_block),
      ON_EMPTY_DEVICES(freed_neighbours_become_one_block_in_any_order),
      ON_EMPTY_DEVICES(a_small_block_freed_last_is_one_with_its_neighbours),
      ON_EMPTY_DEVICES(a_large_block_freed_last_is_one_with_its_neighbours),
      ON_EMPTY_DEVICES(split_blocks_are_counted_by_the_net_change_of_an_operation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
