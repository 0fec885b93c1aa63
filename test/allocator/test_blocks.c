/* test_blocks.c: the fields of a block, and invalid arguments. */
#include "support.h"

static void a_block_has_the_requested_values(void **state) {
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

static void a_recycled_block_keeps_nothing_of_its_past(void **state) {
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
  assert_error("device -1");
  assert_status(openreg_block_allocate(TEST_DEVICES, 0, 1, &block), OPENREG_INVALID_DEVICE);
  assert_error("expected 0 to 1");
  assert_status(openreg_block_allocate(1 << 20, 0, 1, &block), OPENREG_INVALID_DEVICE);
  assert_ptr_equal(block, state); /* no result is written on failure */
}

static void a_stream_that_does_not_exist_is_refused(void **state) {
  (void)state;
  openreg_block *block = (openreg_block *)state;
  assert_status(openreg_block_allocate(0, -1, 1, &block), OPENREG_INVALID_ARGUMENT);
  assert_error("stream -1: expected 0 to 128");
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
  assert_null(openreg_block_find(address + 20 * MIB)); /* nothing is reserved there */
  assert_null(openreg_block_find(state));
  openreg_block_free(small);
  assert_null(openreg_block_find(address));
  openreg_block_free(large);
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(a_block_has_the_requested_values),
      ON_EMPTY_DEVICES(a_recycled_block_keeps_nothing_of_its_past),
      ON_EMPTY_DEVICES(a_block_of_no_bytes_has_no_address_and_counts_as_nothing),
      ON_EMPTY_DEVICES(a_device_that_does_not_exist_is_refused),
      ON_EMPTY_DEVICES(a_stream_that_does_not_exist_is_refused),
      ON_EMPTY_DEVICES(a_missing_result_pointer_is_refused),
      ON_EMPTY_DEVICES(freeing_null_is_allowed),
      ON_EMPTY_DEVICES(a_block_is_found_by_its_first_address_while_it_is_allocated),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
