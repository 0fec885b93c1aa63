/* test_mempool_unsplit.c: memory pools whose segments are neither cut nor joined. */
#include "support.h"

#include "allocator/internal.h"

enum { ALL = OPENREG_POOL_ALL };

static uint64_t made(unsigned how) {
  uint64_t mempool;
  assert_ok(openreg_mempool_create(how, &mempool));
  assert_ok(openreg_mempool_set_current(0, mempool));
  return mempool;
}

static void destroyed(uint64_t mempool) {
  assert_ok(openreg_mempool_set_current(0, 0));
  assert_ok(openreg_mempool_destroy(mempool));
}

/* As the snapshot shows it: a block, and as long as its segment. */
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
  openreg_block *small[2] = {take(0, 0, 100), take(0, 0, 100)}, *large = take(0, 0, 3 * MIB);
  assert_blocks_are_segments(3);
  assert_int_equal(small[0]->bytes, 2 * MIB);
  assert_int_equal(small[0]->requested_bytes, 100);
  assert_int_equal(large->bytes, 4 * MIB);
  openreg_memory_stats stats = stats_of(0);
  assert_stat(stats.allocated_bytes[ALL], 8 * MIB, 8 * MIB, 8 * MIB, 0);
  assert_stat(stats.requested_bytes[ALL], 3 * MIB + 200, 3 * MIB + 200, 3 * MIB + 200, 0);
  assert_stat(stats.segment[ALL], 3, 3, 3, 0);
  assert_stat(stats.inactive_split[ALL], 0, 0, 0, 0);
  for (int i = 0; i < 2; i++)
    openreg_block_free(small[i]);
  assert_blocks_are_segments(3);
  openreg_block_free(large);
  destroyed(mempool);
}

static void freed_neighbours_stay_apart(void **state) {
  (void)state;
  uint64_t mempool = made(OPENREG_MEMPOOL_NO_SPLIT);
  openreg_block *blocks[3];
  for (int i = 0; i < 3; i++)
    blocks[i] = take(0, 0, 2 * MIB);
  for (int i = 0; i < 3; i++)
    openreg_block_free(blocks[i]);
  assert_blocks_are_segments(3);
  openreg_block *longer = take(0, 0, 4 * MIB); /* none of them is long enough */
  assert_blocks_are_segments(4);
  assert_int_equal(stats_of(0).reserved_bytes[ALL].current, 10 * MIB);
  openreg_block_free(longer);
  destroyed(mempool);
}

static void a_request_takes_all_of_the_smallest_segment_that_fits(void **state) {
  (void)state;
  uint64_t mempool = made(OPENREG_MEMPOOL_NO_SPLIT);
  openreg_block *eight = take(0, 0, 8 * MIB), *four = take(0, 0, 4 * MIB);
  void *address = four->address;
  openreg_block_free(eight);
  openreg_block_free(four);
  openreg_block *block = take(0, 0, 2 * MIB);
  assert_ptr_equal(block->address, address);
  assert_int_equal(block->bytes, 4 * MIB);
  assert_int_equal(block->requested_bytes, 2 * MIB);
  assert_blocks_are_segments(2);
  assert_int_equal(stats_of(0).reserved_bytes[ALL].current, 12 * MIB);
  openreg_block_free(block);
  destroyed(mempool);
}

static void emptying_gives_back_whole_segments(void **state) {
  (void)state;
  uint64_t mempool = made(OPENREG_MEMPOOL_NO_SPLIT);
  openreg_block *low = take(0, 0, 2 * MIB), *middle = take(0, 0, 2 * MIB),
                *high = take(0, 0, 2 * MIB);
  openreg_block_free(middle);
  assert_ok(openreg_mempool_empty(mempool));
  assert_blocks_are_segments(2);
  assert_int_equal(stats_of(0).reserved_bytes[ALL].current, 4 * MIB);
  middle = take(0, 0, 2 * MIB);
  assert_blocks_are_segments(3);
  openreg_block_free(low);
  openreg_block_free(middle);
  openreg_block_free(high);
  destroyed(mempool);
}

/* A destroyed pool in which a thread goes on to allocate, on a stream that it did not use before.
 */
static void a_destroyed_pool_splits_no_more_than_before(void **state) {
  (void)state;
  uint64_t mempool = made(OPENREG_MEMPOOL_NO_SPLIT);
  assert_ok(openreg_mempool_destroy(mempool));
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
  mempool = made(0);
  openreg_block *blocks[2] = {take(0, 0, 512), take(0, 0, 512)};
  assert_int_equal(blocks[1]->bytes, 512);
  assert_int_equal(stats_of(0).segment[ALL].current, 1);
  openreg_block_free(blocks[0]);
  openreg_block_free(blocks[1]);
  destroyed(mempool);
}

/* For the program outside of it, when memory is used up. */
static void it_can_help_out(void **state) {
  (void)state;
  uint64_t mempool = made(OPENREG_MEMPOOL_NO_SPLIT | OPENREG_MEMPOOL_USE_ON_OOM);
  openreg_block_free(take(0, 0, 4 * MIB));
  assert_ok(openreg_mempool_set_current(0, 0));
  openreg_block *rest = take(0, 0, CAPACITY - 4 * MIB), *block = take(0, 0, 3 * MIB);
  assert_int_equal(block->bytes, 4 * MIB);
  openreg_block_free(block);
  openreg_block_free(rest);
  destroyed(mempool);
}

static void other_ways_to_make_a_pool_are_refused(void **state) {
  (void)state;
  uint64_t mempool;
  assert_status(openreg_mempool_create(4, &mempool), OPENREG_INVALID_ARGUMENT);
  assert_sentence(
      "openreg_mempool_create: how=4: expected any of OPENREG_MEMPOOL_USE_ON_OOM (1) and "
      "OPENREG_MEMPOOL_NO_SPLIT (2)");
}

static void a_split_segment_is_noticed(void **state) {
  (void)state;
  uint64_t mempool = made(OPENREG_MEMPOOL_NO_SPLIT);
  openreg_block *block = take(0, 0, 512);
  struct block *whole = block_of(block);
  whole->pool->is_unsplit = false;
  assert_false(openreg_memory_is_valid(0));
  whole->pool->is_unsplit = true;
  assert_true(openreg_memory_is_valid(0));
  openreg_block_free(block);
  destroyed(mempool);
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(each_block_is_a_segment),
      ON_EMPTY_DEVICES(freed_neighbours_stay_apart),
      ON_EMPTY_DEVICES(a_request_takes_all_of_the_smallest_segment_that_fits),
      ON_EMPTY_DEVICES(emptying_gives_back_whole_segments),
      ON_EMPTY_DEVICES(a_destroyed_pool_splits_no_more_than_before),
      ON_EMPTY_DEVICES(the_records_of_its_pools_serve_others_split),
      ON_EMPTY_DEVICES(it_can_help_out),
      ON_EMPTY_DEVICES(other_ways_to_make_a_pool_are_refused),
      ON_EMPTY_DEVICES(a_split_segment_is_noticed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
