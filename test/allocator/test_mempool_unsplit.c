/* test_mempool_unsplit.c: memory pools whose blocks are never split. */
#include "support.h"

enum { ALL = OPENREG_POOL_ALL };

static uint64_t made(unsigned flags) {
  uint64_t mempool;
  assert_ok(openreg_mempool_create(flags, NULL, &mempool));
  assert_ok(openreg_mempool_set_current(0, mempool));
  return mempool;
}

static void destroyed(uint64_t mempool) {
  assert_ok(openreg_mempool_set_current(0, 0));
  assert_ok(openreg_mempool_release(mempool));
}

/* Asserts that each segment in the snapshot is one block. */
static void assert_blocks_are_segments(size_t count) {
  openreg_memory_snapshot snapshot;
  assert_ok(openreg_memory_take_snapshot(0, &snapshot));
  assert_int_equal(snapshot.segment_count, count);
  for (size_t i = 0; i < count; i++) {
    const openreg_segment_info *segment = &snapshot.segments[i];
    assert_int_equal(segment->block_count, 1);
    assert_int_equal(snapshot.blocks[segment->first_block].bytes, segment->bytes);
  }
  openreg_memory_free_snapshot(&snapshot);
  assert_true(openreg_memory_is_valid(0));
}

static void each_block_is_a_segment(void **state) {
  (void)state;
  uint64_t mempool = made(OPENREG_MEMPOOL_NO_SPLIT);
  openreg_block *small[2] = {take(0, 0, 4), take(0, 0, 4)}, *large = take(0, 0, 3 * MIB),
                *own = take(0, 0, 12 * MIB + 300000);
  assert_blocks_are_segments(4);
  assert_int_equal(small[0]->bytes, 2 * MIB);
  assert_int_equal(small[0]->requested_bytes, 4);
  assert_int_equal(large->bytes, 20 * MIB);
  assert_int_equal(own->bytes, 14 * MIB);
  openreg_memory_stats stats = stats_of(0);
  assert_stat(stats.allocated_bytes[ALL], 38 * MIB, 38 * MIB, 38 * MIB, 0);
  assert_int_equal(stats.requested_bytes[ALL].current, 15 * MIB + 300008);
  assert_stat(stats.segment[ALL], 4, 4, 4, 0);
  assert_stat(stats.inactive_split[ALL], 0, 0, 0, 0);
  for (int i = 0; i < 2; i++)
    openreg_block_free(small[i]);
  assert_blocks_are_segments(4);
  openreg_block_free(large);
  openreg_block_free(own);
  destroyed(mempool);
}

static void a_request_takes_all_of_the_smallest_segment_that_fits(void **state) {
  (void)state;
  uint64_t mempool = made(OPENREG_MEMPOOL_NO_SPLIT);
  openreg_block *twenty = take(0, 0, 3 * MIB), *twelve = take(0, 0, 12 * MIB);
  size_t place = place_of(twelve);
  openreg_block_free(twenty);
  openreg_block_free(twelve);
  openreg_block *block = take(0, 0, 5 * MIB);
  assert_int_equal(place_of(block), place);
  assert_int_equal(block->bytes, 12 * MIB);
  assert_int_equal(block->requested_bytes, 5 * MIB);
  assert_blocks_are_segments(2);
  openreg_block_free(block);
  destroyed(mempool);
}

static void emptying_releases_free_blocks(void **state) {
  (void)state;
  uint64_t mempool = made(OPENREG_MEMPOOL_NO_SPLIT);
  openreg_block *low = take(0, 0, 12 * MIB), *middle = take(0, 0, 14 * MIB),
                *high = take(0, 0, 16 * MIB);
  openreg_block_free(middle);
  destroyed(mempool);
  assert_ok(openreg_mempool_empty(mempool));
  assert_blocks_are_segments(2);
  assert_int_equal(stats_of(0).reserved_bytes[ALL].current, 28 * MIB);
  openreg_block_free(low);
  openreg_block_free(high);
}

/* Everything that is mapped for a request is its block, and free neighbors merge. */
static void a_block_of_an_expandable_segment_is_whole_pages(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.expandable_segments = true;
  set_settings(settings);
  uint64_t mempool = made(OPENREG_MEMPOOL_NO_SPLIT);
  openreg_block *small = take(0, 0, 4), *low = take(0, 0, 12 * MIB), *high = take(0, 0, 12 * MIB);
  assert_int_equal(small->bytes, 2 * MIB);
  assert_int_equal(low->bytes, 20 * MIB);
  assert_int_equal(high->bytes, 20 * MIB);
  openreg_block_free(low);
  openreg_block_free(high);
  openreg_block *whole = take(0, 0, 12 * MIB);
  assert_int_equal(whole->bytes, 40 * MIB);
  openreg_block_free(whole);
  openreg_block_free(small);
  destroyed(mempool);
}

/* A thread continues to allocate in it, on a stream that it did not use before. */
static void a_destroyed_pool_splits_no_more_than_before(void **state) {
  (void)state;
  uint64_t mempool = made(OPENREG_MEMPOOL_NO_SPLIT);
  assert_ok(openreg_mempool_release(mempool));
  openreg_block *blocks[2] = {take(0, 3, 512), take(0, 3, 512)};
  assert_blocks_are_segments(2);
  assert_ok(openreg_mempool_set_current(0, 0));
  openreg_block_free(blocks[0]);
  openreg_block_free(blocks[1]);
}

static void the_records_of_its_pools_serve_others_split(void **state) {
  (void)state;
  uint64_t mempool = made(OPENREG_MEMPOOL_NO_SPLIT);
  openreg_block_free(take(0, 0, 512));
  destroyed(mempool);
  assert_ok(openreg_mempool_empty(mempool));
  mempool = made(0);
  openreg_block *blocks[2] = {take(0, 0, 512), take(0, 0, 512)};
  assert_int_equal(blocks[1]->bytes, 512);
  assert_int_equal(stats_of(0).segment[ALL].current, 1);
  openreg_block_free(blocks[0]);
  openreg_block_free(blocks[1]);
  destroyed(mempool);
}

/* Requests of the default pool use it when memory runs out. */
static void an_unsplit_pool_can_have_use_on_oom(void **state) {
  (void)state;
  uint64_t mempool = made(OPENREG_MEMPOOL_NO_SPLIT | OPENREG_MEMPOOL_USE_ON_OOM);
  openreg_block_free(take(0, 0, 4 * MIB));
  assert_ok(openreg_mempool_set_current(0, 0));
  openreg_block *rest = take(0, 0, CAPACITY - 20 * MIB), *block = take(0, 0, 3 * MIB);
  assert_int_equal(block->bytes, 20 * MIB);
  openreg_block_free(block);
  openreg_block_free(rest);
  destroyed(mempool);
}

static void unknown_flags_are_refused(void **state) {
  (void)state;
  uint64_t mempool;
  assert_status(openreg_mempool_create(4, NULL, &mempool), OPENREG_INVALID_ARGUMENT);
  assert_error(
      "openreg_mempool_create: flags=4: expected any of OPENREG_MEMPOOL_USE_ON_OOM (1) and "
      "OPENREG_MEMPOOL_NO_SPLIT (2)");
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(each_block_is_a_segment),
      ON_EMPTY_DEVICES(a_request_takes_all_of_the_smallest_segment_that_fits),
      ON_EMPTY_DEVICES(emptying_releases_free_blocks),
      ON_EMPTY_DEVICES(a_block_of_an_expandable_segment_is_whole_pages),
      ON_EMPTY_DEVICES(a_destroyed_pool_splits_no_more_than_before),
      ON_EMPTY_DEVICES(the_records_of_its_pools_serve_others_split),
      ON_EMPTY_DEVICES(an_unsplit_pool_can_have_use_on_oom),
      ON_EMPTY_DEVICES(unknown_flags_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
