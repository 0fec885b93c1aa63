/* test_mempool.c: memory pools are separate from other memory until their owner destroys them. */
#include "support.h"

#include <pthread.h>

enum { ALL = OPENREG_POOL_ALL };

static int maps;

void *__real_openreg_pages_map(size_t bytes);
void *__wrap_openreg_pages_map(size_t bytes);

/* Counts how often the allocator allocates pages for its records; -1 makes it fail. */
void *__wrap_openreg_pages_map(size_t bytes) {
  if (maps >= 0) {
    maps++;
    return __real_openreg_pages_map(bytes);
  }
  openreg_fail(OPENREG_SYSTEM, "no pages");
  return NULL;
}

/* Returns the bytes reserved for a pool, according to the snapshot. */
static size_t reserved_by(uint64_t mempool, int device) {
  openreg_memory_snapshot snapshot = snapshot_of(device);
  size_t bytes = 0;
  for (size_t i = 0; i < snapshot.segment_count; i++)
    bytes += snapshot.segments[i].mempool == mempool ? snapshot.segments[i].bytes : 0;
  openreg_memory_free_snapshot(&snapshot);
  return bytes;
}

static void pools_share_no_segment(void **state) {
  (void)state;
  uint64_t one = make_mempool(false), other = make_mempool(false);
  openreg_block *blocks[] = {take(0, 0, 512), take_in(one, 0, 0, 512), take_in(other, 0, 0, 512),
                             take(0, 0, 3 * MIB), take_in(one, 0, 0, 3 * MIB)};
  assert_int_equal(reserved_by(0, 0), 22 * MIB);
  assert_int_equal(reserved_by(one, 0), 22 * MIB);
  assert_int_equal(reserved_by(other, 0), 2 * MIB);
  assert_int_equal(stats_of(0).segment[ALL].current, 5);
  assert_snapshot_agrees(0);
  assert_true(openreg_memory_is_valid(0));
  for (int i = 0; i < 5; i++)
    openreg_block_free(blocks[i]);
  assert_int_equal(stats_of(0).segment[ALL].current, 5);
  assert_ok(openreg_mempool_release(one));
  assert_ok(openreg_mempool_release(other));
}

static void free_memory_of_one_pool_serves_no_other(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false);
  openreg_block *block = take_in(mempool, 0, 0, 4 * MIB);
  void *address = block->address;
  openreg_block_free(block);
  openreg_block *outside = take(0, 0, 4 * MIB);
  assert_ptr_not_equal(outside->address, address);
  openreg_block_free(outside);
  openreg_block *inside = take_in(mempool, 0, 0, 4 * MIB);
  assert_ptr_equal(inside->address, address);
  openreg_block_free(inside);
  assert_ok(openreg_mempool_release(mempool));
}

static void *allocate_elsewhere(void *result) {
  uint64_t mempool = 1;
  if (openreg_mempool_current(0, &mempool) == OPENREG_OK && mempool == 0 &&
      openreg_block_allocate(0, 0, 512, result) != OPENREG_OK)
    *(openreg_block **)result = NULL;
  return NULL;
}

static void the_current_pool_is_a_threads_own(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false);
  openreg_block *block = NULL;
  pthread_t thread;
  assert_ok(openreg_mempool_set_current(0, mempool));
  assert_int_equal(pthread_create(&thread, NULL, allocate_elsewhere, &block), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_ok(openreg_mempool_set_current(0, 0));
  assert_non_null(block);
  assert_int_equal(reserved_by(0, 0), 2 * MIB);
  assert_int_equal(reserved_by(mempool, 0), 0);
  openreg_block_free(block);
  assert_ok(openreg_mempool_release(mempool));
}

static void the_current_pool_is_that_of_one_device(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false), current;
  assert_ok(openreg_mempool_set_current(0, mempool));
  assert_ok(openreg_mempool_current(1, &current));
  assert_int_equal(current, 0);
  openreg_block *other = take(1, 0, 512), *block = take(0, 0, 512);
  assert_ok(openreg_mempool_set_current(0, 0));
  assert_int_equal(reserved_by(0, 1), 2 * MIB);
  assert_int_equal(reserved_by(mempool, 0), 2 * MIB);
  openreg_block_free(other);
  openreg_block_free(block);
  assert_ok(openreg_mempool_release(mempool));
}

/* ---- releasing ------------------------------------------------------------------------------- */

static void emptying_the_cache_leaves_pools_their_memory(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false);
  openreg_block_free(take_in(mempool, 0, 0, 4 * MIB));
  openreg_block_free(take(0, 0, 4 * MIB));
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(reserved_by(0, 0), 0);
  assert_int_equal(reserved_by(mempool, 0), 20 * MIB);
  assert_ok(openreg_mempool_release(mempool));
}

static void emptying_a_pool_that_is_kept_does_nothing(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false);
  openreg_block_free(take_in(mempool, 0, 0, 4 * MIB));
  assert_ok(openreg_mempool_empty(mempool));
  assert_int_equal(reserved_by(mempool, 0), 20 * MIB);
  assert_int_equal(stats_of(0).stream_syncs, 0);
  assert_ok(openreg_mempool_release(mempool));
}

static void destroying_a_pool_changes_no_statistic(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false);
  openreg_block_free(take_in(mempool, 0, 0, 4 * MIB));
  openreg_memory_stats before = stats_of(0);
  assert_ok(openreg_mempool_release(mempool));
  openreg_memory_stats after = stats_of(0);
  assert_memory_equal(&before, &after, sizeof before);
}

static void emptying_a_destroyed_pool_leaves_all_others_theirs(void **state) {
  (void)state;
  uint64_t one = make_mempool(false), other = make_mempool(false);
  for (int device = 0; device < TEST_DEVICES; device++) {
    openreg_block_free(take(device, 0, 2 * MIB));
    openreg_block_free(take_in(one, device, 1, 12 * MIB));
    openreg_block_free(take_in(other, device, 2, 14 * MIB));
  }
  assert_ok(openreg_mempool_release(one));
  assert_ok(openreg_mempool_empty(one));
  for (int device = 0; device < TEST_DEVICES; device++) {
    assert_int_equal(reserved_by(one, device), 0);
    assert_int_equal(ledger_free(device), CAPACITY - 34 * MIB);
    assert_int_equal(stats_of(device).stream_syncs, 1);
    assert_int_equal(stats_of(device).device_frees, 1);
  }
  assert_ok(openreg_mempool_release(other));
}

/* And nothing waits for streams any more. */
static void a_pool_without_memory_is_gone(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false);
  openreg_block_free(take_in(mempool, 0, 1, 512));
  assert_ok(openreg_mempool_release(mempool));
  assert_ok(openreg_mempool_empty(mempool));
  assert_ok(openreg_mempool_empty(mempool));
  assert_int_equal(stats_of(0).stream_syncs, 1);
}

static void blocks_of_a_destroyed_pool_are_released_when_they_are_free(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false);
  openreg_block *kept = take_in(mempool, 0, 0, 12 * MIB), *freed = take_in(mempool, 0, 0, 14 * MIB);
  openreg_block_free(freed);
  assert_ok(openreg_mempool_release(mempool));
  assert_ok(openreg_mempool_empty(mempool));
  assert_int_equal(reserved_by(mempool, 0), 12 * MIB);
  assert_true(openreg_memory_is_valid(0));
  openreg_block_free(kept);
  assert_int_equal(reserved_by(mempool, 0), 12 * MIB);
  assert_ok(openreg_cache_empty(0)); /* which also frees it */
  assert_int_equal(ledger_free(0), CAPACITY);
}

static void a_thread_continues_in_a_destroyed_pool(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false), current;
  assert_ok(openreg_mempool_set_current(0, mempool));
  assert_ok(openreg_mempool_release(mempool));
  openreg_block *block = take(0, 0, 512);
  assert_int_equal(reserved_by(mempool, 0), 2 * MIB);
  assert_ok(openreg_mempool_current(0, &current));
  assert_int_equal(current, mempool);
  openreg_block_free(block);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(reserved_by(mempool, 0), 2 * MIB); /* the thread keeps it */
  assert_ok(openreg_mempool_set_current(0, 0));
  assert_status(openreg_mempool_set_current(0, mempool), OPENREG_INVALID_ARGUMENT);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(ledger_free(0), CAPACITY);
}

/* ---- running out of memory ------------------------------------------------------------------- */

/* Two pools fill the device; each has `bytes` of free memory. */
static void fill(uint64_t one, uint64_t other, int stream, size_t bytes) {
  openreg_block_free(take_in(one, 0, stream, bytes));
  openreg_block_free(take_in(other, 0, stream, bytes));
}

static void a_request_that_fits_nowhere_else_uses_a_pool_with_use_on_oom(void **state) {
  (void)state;
  uint64_t no = make_mempool(false), yes = make_mempool(true);
  fill(no, yes, 0, 32 * MIB);
  openreg_block *block = take(0, 0, 30 * MIB);
  assert_int_equal(active_blocks_of(yes), 1);
  assert_int_equal(active_blocks_of(no), 0);
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.alloc_retries, 0);
  assert_int_equal(stats.ooms, 0);
  assert_snapshot_agrees(0);
  openreg_block_free(block);
  assert_int_equal(reserved_by(yes, 0), 32 * MIB);
  assert_ok(openreg_mempool_release(no));
  assert_ok(openreg_mempool_release(yes));
}

static void other_pools_keep_their_free_memory(void **state) {
  (void)state;
  uint64_t no = make_mempool(false);
  openreg_block_free(take_in(no, 0, 0, 32 * MIB));
  refused(0, 0, 40 * MIB);
  openreg_block *rest = take(0, 0, 32 * MIB);
  refused(0, 0, 30 * MIB);
  assert_int_equal(reserved_by(no, 0), 32 * MIB);
  openreg_block_free(rest);
  assert_ok(openreg_mempool_release(no));
}

/* 24 MiB are cached for another stream, and would fit too. */
static void pools_with_use_on_oom_come_before_other_cached_memory(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(true);
  openreg_block_free(take(0, 1, 24 * MIB));
  openreg_block_free(take_in(mempool, 0, 0, 30 * MIB));
  openreg_block *block = take(0, 0, 24 * MIB);
  assert_int_equal(active_blocks_of(mempool), 1);
  assert_int_equal(stats_of(0).device_frees, 0);
  openreg_block_free(block);
  assert_ok(openreg_mempool_release(mempool));
}

/* Runs first, because the order depends on the pools' numbers. Each pool has a segment of 2 MiB,
 * half of it free. A GPU tried twelve of them in this order. */
static void pools_with_use_on_oom_are_tried_in_cudas_order(void **state) {
  (void)state;
  static const uint64_t order[] = {5, 10, 2, 7, 12, 4, 9, 1, 6, 11, 3, 8};
  enum { POOLS = sizeof order / sizeof *order };
  uint64_t mempools[POOLS];
  openreg_block *held[POOLS], *blocks[POOLS], *rest = take(0, 0, 40 * MIB);
  for (int i = 0; i < POOLS; i++) {
    mempools[i] = make_mempool(true);
    assert_int_equal(mempools[i], i + 1);
    held[i] = take_in(mempools[i], 0, 0, MIB);
  }
  for (int i = 0; i < POOLS; i++) {
    blocks[i] = take(0, 0, MIB);
    assert_int_equal(place_of(blocks[i]), place_of(held[order[i] - 1]) + MIB);
  }
  for (int i = 0; i < POOLS; i++) {
    openreg_block_free(held[i]);
    openreg_block_free(blocks[i]);
    assert_ok(openreg_mempool_release(mempools[i]));
  }
  openreg_block_free(rest);
}

static void pools_with_use_on_oom_serve_their_stream_and_pool_0_only(void **state) {
  (void)state;
  uint64_t no = make_mempool(false), yes = make_mempool(true);
  openreg_block *none;
  fill(no, yes, 0, 32 * MIB);
  assert_status(openreg_block_allocate(0, 1, 4 * MIB, &none), OPENREG_OUT_OF_MEMORY);
  openreg_block *held = take_in(no, 0, 0, 32 * MIB);
  assert_ok(openreg_mempool_set_current(0, no));
  assert_status(openreg_block_allocate(0, 0, 4 * MIB, &none), OPENREG_OUT_OF_MEMORY);
  assert_ok(openreg_mempool_set_current(0, 0));
  assert_int_equal(stats_of(0).ooms, 2);
  openreg_block_free(held);
  assert_ok(openreg_mempool_release(yes));
  assert_ok(openreg_mempool_release(no));
}

static void a_request_in_a_pool_empties_the_cache_if_need_be(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false);
  openreg_block_free(take(0, 0, 40 * MIB));
  openreg_block *block = take_in(mempool, 0, 0, 40 * MIB);
  assert_int_equal(stats_of(0).alloc_retries, 1);
  openreg_block_free(block);
  assert_ok(openreg_mempool_release(mempool));
}

static void the_use_count_counts_users(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false), named;
  assert_int_equal(openreg_mempool_use_count(mempool), 1);
  assert_ok(openreg_mempool_retain(mempool));
  assert_int_equal(openreg_mempool_use_count(mempool), 2);
  openreg_block_free(take_in(mempool, 0, 0, 512));
  assert_ok(openreg_mempool_release(mempool));
  assert_ok(openreg_mempool_empty(mempool));
  assert_int_equal(reserved_by(mempool, 0), 2 * MIB);
  assert_ok(openreg_mempool_release(mempool));
  assert_int_equal(openreg_mempool_use_count(mempool), 0);
  assert_ok(openreg_mempool_empty(mempool));
  assert_int_equal(reserved_by(mempool, 0), 0);

  assert_ok(openreg_mempool_allocate_id(&named));
  assert_int_equal(openreg_mempool_use_count(named), 0);
  assert_status(openreg_mempool_set_current(0, named), OPENREG_INVALID_ARGUMENT);
  uint64_t later = make_mempool(false);
  assert_true(named < later);
  assert_ok(openreg_mempool_retain(named)); /* comes before the later one in the list */
  openreg_block *block = take_in(named, 0, 0, 512), *other = take_in(later, 0, 0, 512);
  assert_int_equal(reserved_by(named, 0), 2 * MIB);
  openreg_block_free(block);
  openreg_block_free(other);
  assert_ok(openreg_mempool_release(named));
  assert_ok(openreg_mempool_release(later));
}

/* Except an entry in the device's statistics, whose array is doubled now and then. */
static void pools_that_come_and_go_need_no_more_host_memory(void **state) {
  (void)state;
  uint64_t last = 0;
  for (int i = 0; i < 100; i++) {
    maps = i < 2 ? 0 : maps;
    uint64_t mempool = make_mempool(i % 2);
    assert_true(mempool > last); /* numbers are never reused */
    last = mempool;
    openreg_block_free(take_in(mempool, 0, i % 3, 512));
    openreg_block_free(take_in(mempool, 0, i % 3, 2 * MIB));
    assert_ok(openreg_mempool_release(mempool));
    assert_ok(openreg_mempool_empty(mempool));
    assert_true(openreg_memory_is_valid(0));
  }
  assert_true(maps <= 2);
}

/* Runs early: later pools reuse records. */
static void a_pool_that_cannot_be_made_on_a_device_loses_nothing(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false);
  openreg_block *none, *block = take(1, 0, 512);
  assert_ok(openreg_mempool_set_current(1, mempool));
  maps = -1;
  assert_status(openreg_block_allocate(1, 0, 512, &none), OPENREG_SYSTEM);
  assert_error("no pages");
  maps = 0;
  assert_true(openreg_memory_is_valid(1));
  openreg_block_free(take(1, 0, 512));
  assert_ok(openreg_mempool_set_current(1, 0));
  openreg_block_free(block);
  assert_ok(openreg_mempool_release(mempool));
}

static void a_pool_whose_creation_fails_does_not_exist(void **state) {
  (void)state;
  enum { MOST = 100 };
  uint64_t mempools[MOST], mempool = 77;
  int made = 0;
  for (maps = 0; maps == 0 && made < MOST; made++) /* until no record of an earlier pool is left */
    mempools[made] = make_mempool(false);
  maps = -1;
  assert_true(openreg_mempool_create(OPENREG_MEMPOOL_USE_ON_OOM, NULL, &mempool) != OPENREG_OK);
  maps = 0;
  assert_error("out of host memory for a new memory pool");
  assert_int_equal(mempool, 77);
  assert_true(openreg_memory_is_valid(0));
  assert_ok(openreg_mempool_release(make_mempool(false)));
  while (made > 0)
    assert_ok(openreg_mempool_release(mempools[--made]));
}

static void a_pool_that_does_not_exist_is_refused(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false), current = 77;
  assert_ok(openreg_mempool_release(mempool));
  const uint64_t bad[] = {mempool, mempool + 1, UINT64_MAX};
  for (int i = 0; i < 3; i++) {
    assert_status(openreg_mempool_release(bad[i]), OPENREG_INVALID_ARGUMENT);
    assert_status(openreg_mempool_empty(bad[i]), i ? OPENREG_INVALID_ARGUMENT : OPENREG_OK);
    assert_int_equal(openreg_mempool_use_count(bad[i]), 0);
    assert_status(openreg_mempool_set_current(0, bad[i]), OPENREG_INVALID_ARGUMENT);
  }
  assert_error("memory pool 18446744073709551615 does not exist");
  assert_status(openreg_mempool_release(0), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_mempool_empty(0), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_mempool_set_current(TEST_DEVICES, 0), OPENREG_INVALID_DEVICE);
  assert_status(openreg_mempool_current(-1, &current), OPENREG_INVALID_DEVICE);
  assert_status(openreg_mempool_create(false, NULL, NULL), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_mempool_retain(0), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_mempool_retain(mempool + 1), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_mempool_allocate_id(NULL), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_mempool_current(0, NULL), OPENREG_INVALID_ARGUMENT);
  assert_int_equal(current, 77);
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(pools_with_use_on_oom_are_tried_in_cudas_order),
      ON_EMPTY_DEVICES(a_pool_whose_creation_fails_does_not_exist),
      ON_EMPTY_DEVICES(a_pool_that_cannot_be_made_on_a_device_loses_nothing),
      ON_EMPTY_DEVICES(pools_share_no_segment),
      ON_EMPTY_DEVICES(free_memory_of_one_pool_serves_no_other),
      ON_EMPTY_DEVICES(the_current_pool_is_a_threads_own),
      ON_EMPTY_DEVICES(the_current_pool_is_that_of_one_device),
      ON_EMPTY_DEVICES(emptying_the_cache_leaves_pools_their_memory),
      ON_EMPTY_DEVICES(emptying_a_pool_that_is_kept_does_nothing),
      ON_EMPTY_DEVICES(destroying_a_pool_changes_no_statistic),
      ON_EMPTY_DEVICES(emptying_a_destroyed_pool_leaves_all_others_theirs),
      ON_EMPTY_DEVICES(a_pool_without_memory_is_gone),
      ON_EMPTY_DEVICES(blocks_of_a_destroyed_pool_are_released_when_they_are_free),
      ON_EMPTY_DEVICES(a_thread_continues_in_a_destroyed_pool),
      ON_EMPTY_DEVICES(a_request_that_fits_nowhere_else_uses_a_pool_with_use_on_oom),
      ON_EMPTY_DEVICES(other_pools_keep_their_free_memory),
      ON_EMPTY_DEVICES(pools_with_use_on_oom_come_before_other_cached_memory),
      ON_EMPTY_DEVICES(pools_with_use_on_oom_serve_their_stream_and_pool_0_only),
      ON_EMPTY_DEVICES(a_request_in_a_pool_empties_the_cache_if_need_be),
      ON_EMPTY_DEVICES(the_use_count_counts_users),
      ON_EMPTY_DEVICES(pools_that_come_and_go_need_no_more_host_memory),
      ON_EMPTY_DEVICES(a_pool_that_does_not_exist_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
