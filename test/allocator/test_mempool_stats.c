/* test_mempool_stats.c: what memory pools have reserved, and how often streams were waited for. */
#include "support.h"

#include <stdlib.h>

/* Returns the statistics of a pool on a device; `mempool` is 0 if there are none. */
static openreg_mempool_stats account_of(int device, uint64_t mempool) {
  openreg_mempool_stats *stats, found = {0};
  size_t count;
  assert_ok(openreg_mempool_get_stats(device, &stats, &count));
  for (size_t i = 0; i < count; i++)
    if (stats[i].mempool == mempool)
      found = stats[i];
  free(stats);
  return found;
}

static void a_pool_that_did_not_allocate_has_no_stats(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false);
  openreg_block_free(take(0, 0, 3 * MIB));
  assert_int_equal(account_of(0, mempool).mempool, 0);
  assert_int_equal(account_of(0, 0).mempool, 0);
  assert_ok(openreg_mempool_release(mempool));
}

static void stats_are_of_one_device_and_all_streams(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false), other = make_mempool(false);
  openreg_block *blocks[] = {
      take_in(mempool, 0, 0, 3 * MIB),
      take_in(mempool, 0, 1, 5 * MIB),
      take_in(mempool, 0, 0, 1000),
      take_in(other, 0, 0, 9 * MIB),
  };
  openreg_mempool_stats account = account_of(0, mempool);
  assert_stat(account.reserved_bytes[OPENREG_POOL_ALL], 42 * MIB, 42 * MIB, 42 * MIB, 0);
  assert_stat(account.reserved_bytes[OPENREG_POOL_LARGE], 40 * MIB, 40 * MIB, 40 * MIB, 0);
  assert_stat(account.reserved_bytes[OPENREG_POOL_SMALL], 2 * MIB, 2 * MIB, 2 * MIB, 0);
  assert_int_equal(account_of(0, other).reserved_bytes[OPENREG_POOL_ALL].current, 20 * MIB);
  assert_int_equal(account_of(1, mempool).mempool, 0);
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
    openreg_block_free(blocks[i]);
  assert_ok(openreg_mempool_release(mempool));
  assert_ok(openreg_mempool_release(other));
}

static void stats_outlive_their_pool(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false);
  openreg_block_free(take_in(mempool, 0, 0, 3 * MIB));
  assert_ok(openreg_mempool_release(mempool));
  assert_ok(openreg_mempool_empty(mempool));
  openreg_mempool_stats account = account_of(0, mempool);
  assert_stat(account.reserved_bytes[OPENREG_POOL_ALL], 0, 20 * MIB, 20 * MIB, 20 * MIB);
  assert_ok(openreg_memory_reset_peak(0));
  assert_ok(openreg_memory_reset_accumulated(0));
  account = account_of(0, mempool);
  assert_stat(account.reserved_bytes[OPENREG_POOL_ALL], 0, 0, 0, 0);
}

static void many_pools_have_stats(void **state) {
  (void)state;
  enum { POOLS = 40 };
  uint64_t mempools[POOLS];
  for (int i = 0; i < POOLS; i++) {
    mempools[i] = make_mempool(false);
    openreg_block_free(take_in(mempools[i], 0, 0, i % 2 ? 1000 : 12 * MIB));
    assert_ok(openreg_mempool_release(mempools[i]));
    assert_ok(openreg_mempool_empty(mempools[i]));
  }
  for (int i = 0; i < POOLS; i++) {
    openreg_mempool_stats account = account_of(0, mempools[i]);
    int64_t bytes = i % 2 ? 2 * MIB : 12 * MIB;
    assert_stat(account.reserved_bytes[OPENREG_POOL_ALL], 0, bytes, bytes, bytes);
  }
}

static void waits_for_streams_are_counted(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 1000);
  assert_ok(openreg_memory_reset_accumulated(0));
  assert_ok(openreg_cache_empty(0));
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(stats_of(0).stream_syncs, 2);
  openreg_block *refused;
  assert_status(openreg_block_allocate(0, 0, CAPACITY, &refused), OPENREG_OUT_OF_MEMORY);
  assert_int_equal(stats_of(0).stream_syncs, 3);
  assert_ok(openreg_memory_reset_accumulated(0));
  assert_int_equal(stats_of(0).stream_syncs, 0);
  openreg_block_free(block);
}

static void bad_arguments_are_refused(void **state) {
  (void)state;
  openreg_mempool_stats *stats;
  size_t count;
  assert_status(openreg_mempool_get_stats(7, &stats, &count), OPENREG_INVALID_DEVICE);
  assert_status(openreg_mempool_get_stats(0, NULL, &count), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_mempool_get_stats(0, &stats, NULL), OPENREG_INVALID_ARGUMENT);
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(a_pool_that_did_not_allocate_has_no_stats),
      ON_EMPTY_DEVICES(stats_are_of_one_device_and_all_streams),
      ON_EMPTY_DEVICES(stats_outlive_their_pool),
      ON_EMPTY_DEVICES(many_pools_have_stats),
      ON_EMPTY_DEVICES(waits_for_streams_are_counted),
      ON_EMPTY_DEVICES(bad_arguments_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
