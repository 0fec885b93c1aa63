/* test_blocks.c: what a block is, where it lies, and how memory is cut and joined. */
#include "support.h"

static char *base_of(int device) {
  void *base;
  size_t bytes;
  assert_ok(openreg_arena_get(device, &base, &bytes));
  return base;
}

static char *address_of(const openreg_block *block) {
  return block->address;
}

static void a_block_shows_what_was_asked(void **state) {
  (void)state;
  openreg_block *block = take(1, 5, 513);
  assert_int_equal(block->bytes, 1024);
  assert_int_equal(block->requested_bytes, 513);
  assert_null(block->user);
  assert_int_equal(block->device, 1);
  assert_int_equal(block->stream, 5);
  assert_int_equal((uintptr_t)block->address % 512, 0);
  assert_int_equal(openreg_arena_device_of(block->address), 1);
  openreg_block_free(block);
}

static void a_recycled_block_shows_nothing_of_its_past(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 4096);
  block->user = state;
  void *address = block->address;
  openreg_block_free(block);
  block = take(0, 0, 3585);
  assert_ptr_equal(block->address, address);
  assert_int_equal(block->requested_bytes, 3585);
  assert_null(block->user);
  openreg_block_free(block);
}

static void sizes_are_rounded_up_to_512_bytes(void **state) {
  (void)state;
  static const size_t requests[] = {1, 511, 512, 513, MIB, MIB + 1, 3 * MIB - 1};
  static const size_t sizes[] = {512, 512, 512, 1024, MIB, MIB + 512, 3 * MIB};
  for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
    openreg_block *block = take(0, 0, requests[i]);
    assert_int_equal(block->bytes, sizes[i]);
    openreg_block_free(block);
  }
}

static void a_block_of_no_bytes_has_no_address_and_counts_as_nothing(void **state) {
  (void)state;
  openreg_block *block = take(0, 3, 0);
  assert_null(block->address);
  assert_int_equal(block->bytes, 0);
  assert_int_equal(block->device, 0);
  assert_int_equal(block->stream, 3);
  assert_ok(openreg_block_record_stream(block, 4));
  assert_null(openreg_block_find(NULL));
  openreg_memory_stats stats = stats_of(0);
  assert_stat(stats.allocation[OPENREG_POOL_ALL], 0, 0, 0, 0);
  assert_stat(stats.reserved_bytes[OPENREG_POOL_ALL], 0, 0, 0, 0);
  assert_true(openreg_memory_is_valid(0));
  openreg_block_free(block);
}

static void a_device_that_does_not_exist_is_refused(void **state) {
  (void)state;
  openreg_block *block = (openreg_block *)state;
  assert_status(openreg_block_allocate(-1, 0, 1, &block), OPENREG_INVALID_DEVICE);
  assert_sentence("device -1");
  assert_status(openreg_block_allocate(TEST_DEVICES, 0, 1, &block), OPENREG_INVALID_DEVICE);
  assert_sentence("expected 0 to 1");
  assert_status(openreg_block_allocate(1 << 20, 0, 1, &block), OPENREG_INVALID_DEVICE);
  assert_ptr_equal(block, state); /* no result is written on failure */
}

static void a_stream_that_does_not_exist_is_refused(void **state) {
  (void)state;
  openreg_block *block = (openreg_block *)state;
  assert_status(openreg_block_allocate(0, -1, 1, &block), OPENREG_INVALID_ARGUMENT);
  assert_sentence("stream -1: expected 0 to 64");
  assert_status(openreg_block_allocate(0, OPENREG_STREAMS_PER_DEVICE, 1, &block),
                OPENREG_INVALID_ARGUMENT);
  assert_ptr_equal(block, state);
  openreg_block_free(take(0, OPENREG_STREAMS_PER_DEVICE - 1, 1));
}

static void a_missing_result_pointer_is_refused(void **state) {
  (void)state;
  assert_status(openreg_block_allocate(0, 0, 1, NULL), OPENREG_INVALID_ARGUMENT);
}

static void freeing_null_is_allowed(void **state) {
  (void)state;
  openreg_block_free(NULL);
}

static void a_block_is_found_by_its_first_address_while_it_is_allocated(void **state) {
  (void)state;
  openreg_block *small = take(0, 0, 1024), *large = take(1, 0, 3 * MIB);
  char *address = small->address;
  assert_ptr_equal(openreg_block_find(small->address), small);
  assert_ptr_equal(openreg_block_find(large->address), large);
  assert_null(openreg_block_find(address + 1));
  assert_null(openreg_block_find(address + 512));
  assert_null(openreg_block_find(address + 1024));
  assert_null(openreg_block_find(base_of(0)));
  assert_null(openreg_block_find(state));
  openreg_block_free(small);
  assert_null(openreg_block_find(address));
  openreg_block_free(large);
}

static void small_blocks_are_cut_from_one_segment(void **state) {
  (void)state;
  openreg_block *blocks[4];
  for (int i = 0; i < 4; i++) {
    blocks[i] = take(0, 0, 512 * KIB);
    assert_ptr_equal(blocks[i]->address, address_of(blocks[0]) + i * 512 * KIB);
  }
  assert_int_equal(stats_of(0).device_allocs, 1);
  for (int i = 0; i < 4; i++)
    openreg_block_free(blocks[i]);
}

static void freed_neighbours_become_one_block_in_any_order(void **state) {
  (void)state;
  static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                   {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (int order = 0; order < 6; order++) {
    openreg_block *blocks[3];
    for (int i = 0; i < 3; i++)
      blocks[i] = take(0, 0, 2 * MIB);
    char *address = blocks[0]->address;
    for (int i = 0; i < 3; i++) {
      openreg_block_free(blocks[orders[order][i]]);
      assert_true(openreg_memory_is_valid(0));
    }
    openreg_block *whole = take(0, 0, 6 * MIB);
    assert_ptr_equal(whole->address, address);
    openreg_block_free(whole);
  }
  assert_int_equal(stats_of(0).reserved_bytes[OPENREG_POOL_ALL].peak, 6 * MIB);
}

/* In [0, 3) the middle one is freed last, between two that are free. */
static void the_block_freed_last_is_one_with_its_neighbours(size_t bytes) {
  openreg_block *blocks[3], *wall;
  for (int i = 0; i < 3; i++)
    blocks[i] = take(0, 0, bytes);
  wall = take(0, 0, bytes);
  char *address = blocks[0]->address;
  openreg_block_free(blocks[0]);
  openreg_block_free(blocks[2]);
  openreg_block_free(blocks[1]);
  openreg_memory_stats freed = stats_of(0);
  for (int i = 0; i < 3; i++) {
    openreg_block *first = take(0, 0, bytes);
    assert_ptr_equal(first->address, address);
    assert_true(openreg_memory_is_valid(0));
    openreg_block_free(first);
  }
  openreg_memory_stats later = stats_of(0);
  assert_int_equal(later.inactive_split[0].current, freed.inactive_split[0].current);
  assert_int_equal(later.inactive_split_bytes[0].current, freed.inactive_split_bytes[0].current);
  openreg_block *whole = take(0, 0, 3 * bytes);
  assert_ptr_equal(whole->address, address);
  openreg_block_free(whole);
  openreg_block_free(wall);
}

static void the_small_block_freed_last_is_one_with_its_neighbours(void **state) {
  (void)state;
  the_block_freed_last_is_one_with_its_neighbours(4096);
}

static void the_large_block_freed_last_is_one_with_its_neighbours(void **state) {
  (void)state;
  the_block_freed_last_is_one_with_its_neighbours(3 * MIB);
}

static void of_equal_large_blocks_the_highest_is_used(void **state) {
  (void)state;
  enum { HOLES = 3 };
  openreg_block *holes[HOLES], *walls[HOLES];
  for (int i = 0; i < HOLES; i++) {
    holes[i] = take(0, 0, 3 * MIB);
    walls[i] = take(0, 0, 2 * MIB);
  }
  char *highest = holes[HOLES - 1]->address;
  for (int i = 0; i < HOLES; i++)
    openreg_block_free(holes[(i + 1) % HOLES]);
  openreg_block *block = take(0, 0, 3 * MIB - 512);
  assert_ptr_equal(block->address, highest);
  openreg_block_free(block);
  for (int i = 0; i < HOLES; i++)
    openreg_block_free(walls[i]);
}

/* Free pieces of these sizes that cannot merge; the blocks between them stay until the end. */
static void the_smallest_free_block_that_fits_is_used(size_t unit) {
  static const size_t sizes[] = {5, 2, 9, 3, 2};
  enum { COUNT = sizeof sizes / sizeof *sizes };
  openreg_block *pieces[COUNT], *between[COUNT];
  char *addresses[COUNT];
  for (int i = 0; i < COUNT; i++) {
    pieces[i] = take(0, 0, sizes[i] * unit);
    between[i] = take(0, 0, unit);
    addresses[i] = pieces[i]->address;
  }
  for (int i = 0; i < COUNT; i++)
    openreg_block_free(pieces[i]);
  assert_true(openreg_memory_is_valid(0));
  openreg_block *three = take(0, 0, 3 * unit), *four = take(0, 0, 4 * unit);
  assert_ptr_equal(three->address, addresses[3]);
  assert_ptr_equal(four->address, addresses[0]);
  openreg_block *six = take(0, 0, 6 * unit);
  assert_ptr_equal(six->address, addresses[2]);
  openreg_block *rest = take(0, 0, 3 * unit); /* what is left of the nine */
  assert_ptr_equal(rest->address, addresses[2] + 6 * unit);
  openreg_block_free(rest);
  openreg_block_free(six);
  openreg_block_free(four);
  openreg_block_free(three);
  for (int i = 0; i < COUNT; i++)
    openreg_block_free(between[i]);
}

static void the_smallest_small_block_that_fits_is_used(void **state) {
  (void)state;
  the_smallest_free_block_that_fits_is_used(512);
  the_smallest_free_block_that_fits_is_used(16 * KIB);
  the_smallest_free_block_that_fits_is_used(40 * KIB);
}

static void the_smallest_large_block_that_fits_is_used(void **state) {
  (void)state;
  the_smallest_free_block_that_fits_is_used(MIB + 512);
}

static void a_reservation_makes_the_segment_below_longer(void **state) {
  (void)state;
  openreg_block *first = take(0, 0, 3 * MIB), *second = take(0, 0, 3 * MIB);
  assert_ptr_equal(second->address, address_of(first) + 3 * MIB);
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.reserved_bytes[OPENREG_POOL_LARGE].current, 6 * MIB);
  assert_int_equal(stats.segment[OPENREG_POOL_LARGE].current, 1);
  assert_int_equal(stats.device_allocs, 2);
  openreg_block_free(first);
  openreg_block_free(second);
}

static void large_blocks_lie_below_and_small_ones_above(void **state) {
  (void)state;
  openreg_block *small = take(0, 0, 512), *large = take(0, 0, 2 * MIB);
  assert_ptr_equal(large->address, base_of(0));
  assert_ptr_equal(small->address, base_of(0) + CAPACITY - 2 * MIB);
  openreg_block_free(small);
  openreg_block_free(large);
}

static void small_blocks_lie_in_the_highest_room_of_several(void **state) {
  (void)state;
  openreg_block *low = take(0, 1, 2 * MIB), *large = take(0, 2, 2 * MIB);
  openreg_block_free(low);
  assert_ok(openreg_cache_empty(0));
  openreg_block *small = take(0, 0, 512);
  assert_ptr_equal(small->address, base_of(0) + CAPACITY - 2 * MIB);
  openreg_block_free(small);
  openreg_block_free(large);
}

static void streams_do_not_use_each_others_free_blocks(void **state) {
  (void)state;
  openreg_block *block = take(0, 1, 4096);
  void *address = block->address;
  openreg_block_free(block);
  openreg_block *other = take(0, 2, 4096);
  assert_ptr_not_equal(other->address, address);
  openreg_block *same = take(0, 1, 4096);
  assert_ptr_equal(same->address, address);
  openreg_block_free(other);
  openreg_block_free(same);
}

static void neighbouring_segments_of_two_streams_do_not_merge(void **state) {
  (void)state;
  openreg_block *one = take(0, 1, 2 * MIB), *two = take(0, 2, 2 * MIB);
  assert_ptr_equal(two->address, address_of(one) + 2 * MIB);
  openreg_block_free(one);
  openreg_block_free(two);
  assert_true(openreg_memory_is_valid(0));
  assert_int_equal(stats_of(0).segment[OPENREG_POOL_LARGE].current, 2);
  openreg_block *whole = take(0, 1, 4 * MIB);
  assert_ptr_equal(whole->address, address_of(two) + 2 * MIB);
  openreg_block_free(whole);
}

static void the_whole_device_can_be_one_block(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, CAPACITY);
  assert_ptr_equal(block->address, base_of(0));
  assert_int_equal(ledger_free(0), 0);
  openreg_block_free(block);
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(a_block_shows_what_was_asked),
      ON_EMPTY_DEVICES(a_recycled_block_shows_nothing_of_its_past),
      ON_EMPTY_DEVICES(sizes_are_rounded_up_to_512_bytes),
      ON_EMPTY_DEVICES(a_block_of_no_bytes_has_no_address_and_counts_as_nothing),
      ON_EMPTY_DEVICES(a_device_that_does_not_exist_is_refused),
      ON_EMPTY_DEVICES(a_stream_that_does_not_exist_is_refused),
      ON_EMPTY_DEVICES(a_missing_result_pointer_is_refused),
      ON_EMPTY_DEVICES(freeing_null_is_allowed),
      ON_EMPTY_DEVICES(a_block_is_found_by_its_first_address_while_it_is_allocated),
      ON_EMPTY_DEVICES(small_blocks_are_cut_from_one_segment),
      ON_EMPTY_DEVICES(freed_neighbours_become_one_block_in_any_order),
      ON_EMPTY_DEVICES(the_small_block_freed_last_is_one_with_its_neighbours),
      ON_EMPTY_DEVICES(the_large_block_freed_last_is_one_with_its_neighbours),
      ON_EMPTY_DEVICES(of_equal_large_blocks_the_highest_is_used),
      ON_EMPTY_DEVICES(the_smallest_small_block_that_fits_is_used),
      ON_EMPTY_DEVICES(the_smallest_large_block_that_fits_is_used),
      ON_EMPTY_DEVICES(a_reservation_makes_the_segment_below_longer),
      ON_EMPTY_DEVICES(large_blocks_lie_below_and_small_ones_above),
      ON_EMPTY_DEVICES(small_blocks_lie_in_the_highest_room_of_several),
      ON_EMPTY_DEVICES(streams_do_not_use_each_others_free_blocks),
      ON_EMPTY_DEVICES(neighbouring_segments_of_two_streams_do_not_merge),
      ON_EMPTY_DEVICES(the_whole_device_can_be_one_block),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
