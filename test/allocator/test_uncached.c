/* test_uncached.c: blocks while the cache is off. */
#include "support.h"

#include <string.h>

static void turn_cache_off(void) {
  openreg_memory_settings settings = default_settings();
  settings.is_cache_off = true;
  set_settings(settings);
}

static void they_count_in_no_statistic_but_in_the_ledger(void **state) {
  (void)state;
  openreg_memory_stats before = stats_of(0), after;
  turn_cache_off();
  openreg_block *block = take(0, 0, 3 * MIB);
  after = stats_of(0);
  assert_memory_equal(&before, &after, sizeof before);
  assert_int_equal(ledger_free(0), CAPACITY - 4 * MIB);
  openreg_memory_snapshot snapshot = snapshot_of(0);
  assert_int_equal(snapshot.segment_count, 0);
  openreg_memory_free_snapshot(&snapshot);
  assert_ptr_equal(openreg_block_find(block->address), block);
  assert_true(openreg_memory_is_valid(0));
  openreg_block_free(block);
  after = stats_of(0);
  assert_memory_equal(&before, &after, sizeof before);
  assert_int_equal(ledger_free(0), CAPACITY);
}

static void they_use_no_cached_memory_and_leave_none(void **state) {
  (void)state;
  openreg_block_free(take(0, 0, 512));
  assert_int_equal(ledger_free(0), CAPACITY - 2 * MIB);
  turn_cache_off();
  openreg_block *block = take(0, 0, 512);
  assert_int_equal(ledger_free(0), CAPACITY - 4 * MIB);
  set_settings(default_settings());
  openreg_block *cached = take(0, 0, 512);
  openreg_block_free(block); /* released, though the cache is on again */
  assert_int_equal(ledger_free(0), CAPACITY - 2 * MIB);
  openreg_block_free(cached);
}

static void a_block_from_before_goes_to_the_cache(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 512);
  turn_cache_off();
  openreg_block_free(block);
  assert_int_equal(ledger_free(0), CAPACITY - 2 * MIB);
  assert_int_equal(stats_of(0).reserved_bytes[OPENREG_POOL_ALL].current, 2 * MIB);
}

/* Writes to a block's memory when its turn has come. */
static openreg_status write_late(void *data) {
  openreg_block *block = data;
  memset(openreg_kernel_view(block->address), 7, block->requested_bytes);
  return OPENREG_OK;
}

static void freeing_waits_for_the_work_of_the_device(void **state) {
  (void)state;
  turn_cache_off();
  openreg_block *block = take(0, 0, MIB);
  openreg_block shown = *block;
  for (int i = 0; i < 20; i++)
    assert_ok(openreg_stream_launch(0, 3, write_late, &shown));
  assert_ok(openreg_block_record_stream(block, 3)); /* no effect: the free waits for all streams */
  openreg_block_free(block);
  assert_int_equal(openreg_stream_query(0, 3), OPENREG_OK);
  assert_int_equal(ledger_free(0), CAPACITY);
  assert_true(openreg_memory_is_valid(0));
}

static openreg_status free_on_worker(void *block) {
  openreg_block_free(block);
  return OPENREG_OK;
}

/* A worker cannot wait for its own stream. */
static void what_a_worker_frees_is_released_by_the_next_allocation(void **state) {
  (void)state;
  turn_cache_off();
  assert_ok(openreg_stream_launch(0, 0, free_on_worker, take(0, 0, 4 * MIB)));
  assert_ok(openreg_stream_synchronize(0, 0));
  assert_int_equal(ledger_free(0), CAPACITY - 4 * MIB);
  assert_true(openreg_memory_is_valid(0));
  openreg_block *block = take(0, 0, CAPACITY);
  openreg_block_free(block);
  assert_int_equal(ledger_free(0), CAPACITY);
}

static void memory_runs_out_at_the_capacity(void **state) {
  (void)state;
  turn_cache_off();
  openreg_block *block = take(0, 0, CAPACITY - 2 * MIB), *none;
  assert_status(openreg_block_allocate(0, 0, 3 * MIB, &none), OPENREG_OUT_OF_MEMORY);
  openreg_block *last = take(0, 1, 2 * MIB);
  openreg_block_free(block);
  openreg_block_free(last);
  assert_int_equal(ledger_free(0), CAPACITY);
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(they_count_in_no_statistic_but_in_the_ledger),
      ON_EMPTY_DEVICES(they_use_no_cached_memory_and_leave_none),
      ON_EMPTY_DEVICES(a_block_from_before_goes_to_the_cache),
      ON_EMPTY_DEVICES(freeing_waits_for_the_work_of_the_device),
      ON_EMPTY_DEVICES(what_a_worker_frees_is_released_by_the_next_allocation),
      ON_EMPTY_DEVICES(memory_runs_out_at_the_capacity),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
