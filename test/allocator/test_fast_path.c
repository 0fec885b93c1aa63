/* test_fast_path.c: the fast path only counts a block that is freed right after its allocation and
 * allocated again; nobody can observe that.
 *
 * Reading the statistics flushes the fast path. So the test performs the same operations on two
 * devices, reads the statistics of one after each operation, and requires that both end with the
 * same statistics, including sums and peaks.
 */
#include "support.h"

#include "allocator/internal.h"

#include <pthread.h>
#include <string.h>

enum { ALL = OPENREG_POOL_ALL, LOOKED_AT = 1 };

static openreg_memory_stats look(int device) {
  openreg_memory_stats stats = stats_of(device);
  assert_true(openreg_memory_is_valid(device));
  return stats;
}

static void assert_alike(void) {
  openreg_memory_stats one = look(0), other = look(1);
  assert_memory_equal(&one, &other, sizeof one);
}

static struct last_allocation *last_allocation_of(int device) {
  struct allocator *allocator;
  assert_ok(openreg_allocator_open(device, &allocator));
  return &allocator->last_allocation;
}

/* ---- one after the other --------------------------------------------------------------------- */

static void each_pair_is_counted(void **state) {
  (void)state;
  openreg_block *held = take(0, 0, 1000);
  void *address = NULL;
  for (int i = 0; i < 10; i++) {
    openreg_block *block = take(0, 0, 700);
    assert_true(!address || block->address == address);
    address = block->address;
    openreg_block_free(block);
  }
  assert_int_equal(last_allocation_of(0)->pairs, 9); /* the fast path was used */
  openreg_memory_stats stats = stats_of(0);
  assert_stat(stats.allocation[ALL], 1, 2, 11, 10);
  assert_stat(stats.active[ALL], 1, 2, 11, 10);
  assert_stat(stats.allocated_bytes[ALL], 1024, 2048, 11 * 1024, 10 * 1024);
  assert_stat(stats.requested_bytes[ALL], 1000, 1700, 1000 + 10 * 700, 10 * 700);
  assert_null(last_allocation_of(0)->block);
  openreg_block_free(held);
}

static void a_freed_block_is_not_found(void **state) {
  (void)state;
  openreg_block_free(take(0, 0, 512));
  openreg_block *block = take(0, 0, 512);
  void *address = block->address;
  assert_ptr_equal(openreg_block_find(address), block);
  openreg_block_free(block);
  assert_true(last_allocation_of(0)->is_free);
  assert_null(openreg_block_find(address));
}

static void another_request_takes_the_slow_path(void **state) {
  (void)state;
  openreg_block_free(take(0, 0, 512));
  openreg_block_free(take(0, 0, 512));
  void *address = last_allocation_of(0)->block->base.address;
  openreg_block *longer = take(0, 0, 700), *elsewhere = take(0, 1, 700);
  assert_ptr_equal(longer->address, address);
  assert_int_equal(longer->requested_bytes, 700);
  assert_int_equal(elsewhere->stream, 1);
  assert_true(openreg_memory_is_valid(0));
  openreg_block_free(longer);
  openreg_block_free(elsewhere);
}

static void the_user_field_is_reset(void **state) {
  (void)state;
  openreg_block_free(take(0, 0, 512));
  openreg_block *block = take(0, 0, 512);
  block->user = state;
  openreg_block_free(block);
  block = take(0, 0, 512);
  assert_null(block->user);
  openreg_block_free(block);
}

static void a_recorded_block_is_not_used_again_too_soon(void **state) {
  (void)state;
  openreg_block_free(take(0, 0, 512));
  openreg_block *block = take(0, 0, 512);
  assert_ok(openreg_block_record_stream(block, 1));
  openreg_block_free(block);
  assert_false(last_allocation_of(0)->is_free);
}

static void memory_pools_are_separate(void **state) {
  (void)state;
  uint64_t mempool;
  assert_ok(openreg_mempool_create(false, NULL, &mempool));
  openreg_block_free(take(0, 0, 512));
  openreg_block *block = take(0, 0, 512);
  void *address = block->address;
  openreg_block_free(block);
  assert_ok(openreg_mempool_set_current(0, mempool));
  openreg_block_free(take(0, 0, 512)); /* reserves a segment */
  for (int i = 0; i < 3; i++) {
    block = take(0, 0, 512);
    assert_true(block->address != address);
    openreg_block_free(block);
  }
  assert_int_equal(last_allocation_of(0)->pairs, 2); /* the fast path also serves pools */
  assert_ok(openreg_mempool_set_current(0, 0));
  assert_ok(openreg_mempool_release(mempool));
}

/* The age of free blocks is counted in searches, so each search must happen. */
static void garbage_collection_turns_the_fast_path_off(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.garbage_collection_threshold = 0.5;
  set_settings(settings);
  assert_ok(openreg_memory_set_fraction(0, 0.75));
  for (int i = 0; i < 3; i++)
    openreg_block_free(take(0, 0, 512));
  assert_null(last_allocation_of(0)->block);
}

static int events;

static void count_event(const openreg_memory_event *event) {
  events +=
      event->action == OPENREG_MEMORY_ALLOCATED || event->action == OPENREG_MEMORY_FREE_COMPLETED;
}

static void an_observer_sees_each(void **state) {
  (void)state;
  openreg_block_free(take(0, 0, 512));
  openreg_block *block = take(0, 0, 512);
  assert_ok(openreg_memory_add_observer(count_event));
  openreg_block_free(block);
  for (int i = 0; i < 3; i++)
    openreg_block_free(take(0, 0, 512));
  openreg_memory_remove_observer(count_event);
  assert_int_equal(events, 7);
}

/* ---- threads --------------------------------------------------------------------------------- */

static bool stop; /* atomic */

/* Each round flushes the fast path of device 0, after the other thread has used it for a while. */
static void *flush_often(void *argument) {
  openreg_memory_stats stats;
  while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
    for (volatile int i = 0; i < 300; i++)
      ;
    assert_ok(openreg_memory_get_stats(0, &stats));
  }
  return argument;
}

static void another_thread_does_not_touch_a_held_block(void **state) {
  (void)state;
  pthread_t other;
  __atomic_store_n(&stop, false, __ATOMIC_RELAXED);
  assert_int_equal(pthread_create(&other, NULL, flush_often, NULL), 0);
  for (uintptr_t round = 1; round < 100000; round++) {
    openreg_block *block = take(0, 0, 700);
    block->user = (void *)round;
    block->user_flags = (uint32_t)round;
    assert_int_equal(block->bytes, 1024);
    assert_int_equal(block->requested_bytes, 700);
    assert_int_equal((uintptr_t)block->user, round);
    assert_int_equal(block->user_flags, (uint32_t)round);
    openreg_block_free(block);
  }
  __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
  assert_int_equal(pthread_join(other, NULL), 0);
}

/* ---- at random ------------------------------------------------------------------------------- */

static uint32_t seed = 7;

static uint32_t random_below(uint32_t bound) {
  seed = seed * 1664525 + 1013904223;
  return (seed >> 8) % bound;
}

static void check_that_flushing_changes_nothing(void) {
  static const size_t sizes[] = {1, 512, 700, 4096, 1 << 20, 3 << 20};
  enum { HELD = 24, ROUNDS = 20000 };
  openreg_block *held[TEST_DEVICES][HELD] = {{NULL}};
  uint32_t slot = 0, size = 0, stream = 0;
  int64_t pairs = 0;
  for (int round = 0; round < ROUNDS; round++) {
    if (random_below(3) == 0) { /* else repeat the previous round: free it, allocate it again */
      slot = random_below(HELD);
      size = random_below(random_below(4) ? 4 : 6);
      stream = random_below(2);
    }
    for (int device = 0; device < TEST_DEVICES; device++) {
      openreg_block **block = &held[device][slot];
      pairs += device != LOOKED_AT && last_allocation_of(device)->pairs > 0;
      if (*block)
        openreg_block_free(*block);
      *block = *block ? NULL : take(device, (int)stream, sizes[size]);
    }
    look(LOOKED_AT);
    if (random_below(200) == 0)
      assert_alike();
    if (random_below(1000) == 0)
      for (int device = 0; device < TEST_DEVICES; device++)
        assert_ok(openreg_cache_empty(device));
    if (random_below(1000) == 0)
      for (int device = 0; device < TEST_DEVICES; device++)
        assert_ok(openreg_memory_reset_peak(device));
    if (random_below(1000) == 0)
      for (int device = 0; device < TEST_DEVICES; device++)
        assert_ok(openreg_memory_reset_accumulated(device));
  }
  assert_true(pairs > 1000);
  for (int device = 0; device < TEST_DEVICES; device++)
    for (int i = 0; i < HELD; i++)
      openreg_block_free(held[device][i]);
  assert_alike();
}

static void flushing_does_not_change_segments(void **state) {
  (void)state;
  check_that_flushing_changes_nothing();
}

static void flushing_does_not_change_expandable_segments(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.expandable_segments = true;
  set_settings(settings);
  check_that_flushing_changes_nothing();
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(each_pair_is_counted),
      ON_EMPTY_DEVICES(a_freed_block_is_not_found),
      ON_EMPTY_DEVICES(another_request_takes_the_slow_path),
      ON_EMPTY_DEVICES(the_user_field_is_reset),
      ON_EMPTY_DEVICES(a_recorded_block_is_not_used_again_too_soon),
      ON_EMPTY_DEVICES(memory_pools_are_separate),
      ON_EMPTY_DEVICES(an_observer_sees_each),
      ON_EMPTY_DEVICES(garbage_collection_turns_the_fast_path_off),
      ON_EMPTY_DEVICES(another_thread_does_not_touch_a_held_block),
      ON_EMPTY_DEVICES(flushing_does_not_change_segments),
      ON_EMPTY_DEVICES(flushing_does_not_change_expandable_segments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
