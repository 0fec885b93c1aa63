/* test_cache.c: running out of memory, giving memory back, and the fraction a process may have. */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALL = OPENREG_POOL_ALL };

/* Pages of a block that the system holds. */
static size_t committed_pages(void *address, size_t bytes) {
  size_t pages = bytes / (size_t)sysconf(_SC_PAGESIZE), count = 0;
  unsigned char *resident = malloc(pages);
  assert_int_equal(mincore(openreg_kernel_view(address), bytes, resident), 0);
  for (size_t i = 0; i < pages; i++)
    count += resident[i] & 1;
  free(resident);
  return count;
}

static void a_request_beyond_the_capacity_fails(void **state) {
  (void)state;
  openreg_block *block = (openreg_block *)state;
  static const size_t requests[] = {CAPACITY + 1, SIZE_MAX / 2, SIZE_MAX - 100, SIZE_MAX};
  for (int i = 0; i < 4; i++)
    assert_status(openreg_block_allocate(0, 0, requests[i], &block), OPENREG_OUT_OF_MEMORY);
  assert_ptr_equal(block, state);
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.ooms, 4);
  assert_int_equal(stats.alloc_retries, 4);
  assert_stat(stats.reserved_bytes[ALL], 0, 0, 0, 0);
}

static void running_out_says_every_figure(void **state) {
  (void)state;
  openreg_block *held = take(1, 0, 40 * MIB), *part = take(1, 0, 512), *none;
  assert_status(openreg_block_allocate(1, 0, 30 * MIB, &none), OPENREG_OUT_OF_MEMORY);
  assert_sentence("out of memory. Tried to allocate 30.00 MiB (31457280 bytes).");
  assert_sentence("Device 1 has a capacity of 64.00 MiB, of which 22.00 MiB is free.");
  assert_sentence("may reserve 64.00 MiB and has reserved 42.00 MiB");
  assert_sentence("40.00 MiB is allocated, 2.00 MiB is reserved but unallocated.");
  assert_status(openreg_block_allocate(1, 0, (size_t)3 << 40, &none), OPENREG_OUT_OF_MEMORY);
  assert_sentence("3072.00 GiB");
  assert_status(openreg_block_allocate(1, 3, 40 * MIB, &none), OPENREG_OUT_OF_MEMORY);
  openreg_block_free(held);
  openreg_block_free(part);
}

static void running_out_leaves_the_rest_as_it_was(void **state) {
  (void)state;
  openreg_block *held = take(0, 0, 40 * MIB), *none;
  openreg_memory_stats before = stats_of(0);
  assert_status(openreg_block_allocate(0, 0, 30 * MIB, &none), OPENREG_OUT_OF_MEMORY);
  openreg_memory_stats after = stats_of(0);
  assert_int_equal(after.ooms, before.ooms + 1);
  assert_int_equal(after.alloc_retries, before.alloc_retries + 1);
  after.ooms = before.ooms;
  after.alloc_retries = before.alloc_retries;
  assert_int_equal(after.stream_syncs, before.stream_syncs + 1);
  after.stream_syncs = before.stream_syncs;
  assert_memory_equal(&before, &after, sizeof before);
  assert_true(openreg_memory_is_valid(0));
  openreg_block *fits = take(0, 0, 24 * MIB);
  openreg_block_free(fits);
  openreg_block_free(held);
}

static void a_request_that_needs_the_cache_of_another_stream_gets_it(void **state) {
  (void)state;
  openreg_block_free(take(0, 1, 40 * MIB));
  assert_int_equal(stats_of(0).reserved_bytes[ALL].current, 40 * MIB);
  openreg_block *block = take(0, 2, 40 * MIB);
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.alloc_retries, 1);
  assert_int_equal(stats.ooms, 0);
  assert_int_equal(stats.reserved_bytes[ALL].current, 40 * MIB);
  assert_int_equal(ledger_free(0), 24 * MIB);
  openreg_block_free(block);
}

/* The arena has room for 20 MiB, but not in one piece. */
static void room_in_pieces_does_not_fit(void **state) {
  (void)state;
  openreg_block *blocks[3] = {take(0, 0, 10 * MIB), take(0, 0, 44 * MIB), take(0, 0, 10 * MIB)};
  openreg_block *none;
  openreg_block_free(blocks[0]);
  openreg_block_free(blocks[2]);
  assert_status(openreg_block_allocate(0, 0, 20 * MIB, &none), OPENREG_OUT_OF_MEMORY);
  assert_int_equal(ledger_free(0), 20 * MIB);
  openreg_block_free(take(0, 0, 10 * MIB));
  openreg_block_free(blocks[1]);
  openreg_block_free(take(0, 0, 64 * MIB));
}

static void emptying_gives_back_the_ledger_and_the_pages(void **state) {
  (void)state;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  openreg_block *block = take(0, 0, 8 * MIB);
  char *address = block->address;
  assert_ok(openreg_fill(address, 7, 8 * MIB));
  assert_int_equal(committed_pages(address, 8 * MIB), 8 * MIB / page);
  openreg_block_free(block);
  assert_int_equal(committed_pages(address, 8 * MIB), 8 * MIB / page);
  assert_int_equal(ledger_free(0), CAPACITY - 8 * MIB);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(committed_pages(address, 8 * MIB), 0);
  assert_int_equal(ledger_free(0), CAPACITY);
}

static void emptying_leaves_allocated_bytes_alone(void **state) {
  (void)state;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  openreg_block *kept = take(0, 0, 3 * MIB), *freed = take(0, 0, 7 * MIB);
  char *address = kept->address;
  assert_ok(openreg_fill(address, 7, 10 * MIB));
  openreg_block_free(freed);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(committed_pages(address, 4 * MIB), 4 * MIB / page);
  assert_int_equal(committed_pages(address + 4 * MIB, 6 * MIB), 0);
  const unsigned char *bytes = openreg_kernel_view(address);
  for (size_t i = 0; i < 3 * MIB; i += page)
    assert_int_equal(bytes[i], 7);
  assert_int_equal(ledger_free(0), CAPACITY - 4 * MIB);
  openreg_block_free(kept);
}

static void emptying_reaches_every_stream_and_both_pools(void **state) {
  (void)state;
  for (int stream = 0; stream < 4; stream++) {
    openreg_block *small = take(0, stream, 512), *large = take(0, stream, 3 * MIB);
    openreg_block_free(small);
    openreg_block_free(large);
  }
  assert_int_equal(ledger_free(0), CAPACITY - 4 * 6 * MIB);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(ledger_free(0), CAPACITY);
  assert_int_equal(stats_of(0).segment[ALL].current, 0);
}

static void emptying_one_device_leaves_the_other(void **state) {
  (void)state;
  openreg_block_free(take(0, 0, 2 * MIB));
  openreg_block_free(take(1, 0, 2 * MIB));
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(stats_of(0).reserved_bytes[ALL].current, 0);
  assert_int_equal(stats_of(1).reserved_bytes[ALL].current, 2 * MIB);
}

static void emptying_a_device_that_does_not_exist_is_refused(void **state) {
  (void)state;
  assert_status(openreg_cache_empty(-1), OPENREG_INVALID_DEVICE);
  assert_status(openreg_cache_empty(TEST_DEVICES), OPENREG_INVALID_DEVICE);
}

static void the_fraction_limits_what_is_reserved(void **state) {
  (void)state;
  openreg_block *none;
  assert_ok(openreg_memory_set_fraction(0, 0.25));
  openreg_block *block = take(0, 0, 16 * MIB);
  assert_status(openreg_block_allocate(0, 0, 1, &none), OPENREG_OUT_OF_MEMORY);
  assert_sentence("may reserve 16.00 MiB and has reserved 16.00 MiB");
  assert_ok(openreg_memory_set_fraction(0, 1));
  openreg_block_free(take(0, 0, 1));
  openreg_block_free(block);
}

static void under_a_fraction_the_cache_is_given_up_first(void **state) {
  (void)state;
  assert_ok(openreg_memory_set_fraction(0, 0.25));
  openreg_block_free(take(0, 1, 16 * MIB));
  openreg_block_free(take(0, 2, 16 * MIB));
  assert_int_equal(stats_of(0).alloc_retries, 1);
}

static void a_fraction_of_nothing_allows_nothing(void **state) {
  (void)state;
  openreg_block *none;
  assert_ok(openreg_memory_set_fraction(1, 0));
  assert_status(openreg_block_allocate(1, 0, 1, &none), OPENREG_OUT_OF_MEMORY);
  assert_sentence("Tried to allocate 1 bytes (1 bytes).");
  assert_sentence("may reserve 0 bytes and has reserved 0 bytes");
}

static void the_fraction_is_kept_for_each_device(void **state) {
  (void)state;
  double fraction;
  assert_ok(openreg_memory_set_fraction(1, 0.3));
  assert_ok(openreg_memory_get_fraction(1, &fraction));
  assert_true(fraction == 0.3);
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

/* [0, 4) is unreserved, the segment at [4, 8) has 1 MiB free at its end: of 6.4 MiB allowed, 3 MiB
 * more can only be had where they need one granule, not two. */
static void the_place_that_needs_least_is_chosen(void **state) {
  (void)state;
  openreg_block *below = take(0, 1, 4 * MIB), *block = take(0, 0, 3 * MIB);
  openreg_block_free(below);
  assert_ok(openreg_cache_empty(0));
  assert_ok(openreg_memory_set_fraction(0, 0.1));
  openreg_block *next = take(0, 0, 3 * MIB);
  assert_ptr_equal(next->address, (char *)block->address + 3 * MIB);
  openreg_block_free(next);
  openreg_block_free(block);
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(a_request_beyond_the_capacity_fails),
      ON_EMPTY_DEVICES(running_out_says_every_figure),
      ON_EMPTY_DEVICES(running_out_leaves_the_rest_as_it_was),
      ON_EMPTY_DEVICES(a_request_that_needs_the_cache_of_another_stream_gets_it),
      ON_EMPTY_DEVICES(room_in_pieces_does_not_fit),
      ON_EMPTY_DEVICES(emptying_gives_back_the_ledger_and_the_pages),
      ON_EMPTY_DEVICES(emptying_leaves_allocated_bytes_alone),
      ON_EMPTY_DEVICES(emptying_reaches_every_stream_and_both_pools),
      ON_EMPTY_DEVICES(emptying_one_device_leaves_the_other),
      ON_EMPTY_DEVICES(emptying_a_device_that_does_not_exist_is_refused),
      ON_EMPTY_DEVICES(the_fraction_limits_what_is_reserved),
      ON_EMPTY_DEVICES(under_a_fraction_the_cache_is_given_up_first),
      ON_EMPTY_DEVICES(a_fraction_of_nothing_allows_nothing),
      ON_EMPTY_DEVICES(the_fraction_is_kept_for_each_device),
      ON_EMPTY_DEVICES(a_fraction_outside_0_to_1_is_refused),
      ON_EMPTY_DEVICES(the_place_that_needs_least_is_chosen),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
