/* test_again.c: a block that is freed right after it was allocated, and allocated again, is not
 * accounted for each time; nobody can tell.
 *
 * Whoever looks has everything accounted for. So one device is looked at after each operation and
 * the other one is not, they do the same, and must have come to the same figures, sums and peaks
 * included.
 */
#include "support.h"

#include "allocator/internal.h"

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

static struct again *again_of(int device) {
  struct allocator *allocator;
  assert_ok(openreg_allocator_open(device, &allocator));
  return &allocator->again;
}

/* ---- one after the other --------------------------------------------------------------------- */

static void each_time_counts(void **state) {
  (void)state;
  openreg_block *held = take(0, 0, 1000);
  void *address = NULL;
  for (int i = 0; i < 10; i++) {
    openreg_block *block = take(0, 0, 700);
    assert_true(!address || block->address == address);
    address = block->address;
    openreg_block_free(block);
  }
  assert_int_equal(again_of(0)->times, 9); /* what this test is about did happen */
  openreg_memory_stats stats = stats_of(0);
  assert_stat(stats.allocation[ALL], 1, 2, 11, 10);
  assert_stat(stats.active[ALL], 1, 2, 11, 10);
  assert_stat(stats.allocated_bytes[ALL], 1024, 2048, 11 * 1024, 10 * 1024);
  assert_stat(stats.requested_bytes[ALL], 1000, 1700, 1000 + 10 * 700, 10 * 700);
  assert_null(again_of(0)->block);
  openreg_block_free(held);
}

static void what_is_freed_so_is_not_found(void **state) {
  (void)state;
  openreg_block_free(take(0, 0, 512));
  openreg_block *block = take(0, 0, 512);
  void *address = block->address;
  assert_ptr_equal(openreg_block_find(address), block);
  openreg_block_free(block);
  assert_true(again_of(0)->is_free);
  assert_null(openreg_block_find(address));
}

static void another_request_is_served_as_ever(void **state) {
  (void)state;
  openreg_block_free(take(0, 0, 512));
  openreg_block_free(take(0, 0, 512));
  void *address = again_of(0)->block->shown.address;
  openreg_block *longer = take(0, 0, 700), *elsewhere = take(0, 1, 700);
  assert_ptr_equal(longer->address, address);
  assert_int_equal(longer->requested_bytes, 700);
  assert_int_equal(elsewhere->stream, 1);
  assert_true(openreg_memory_is_valid(0));
  openreg_block_free(longer);
  openreg_block_free(elsewhere);
}

static void its_user_is_forgotten(void **state) {
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
  assert_false(again_of(0)->is_free);
}

static void memory_pools_keep_theirs(void **state) {
  (void)state;
  uint64_t mempool;
  assert_ok(openreg_mempool_create(false, NULL, &mempool));
  openreg_block_free(take(0, 0, 512));
  openreg_block *block = take(0, 0, 512);
  void *address = block->address;
  openreg_block_free(block);
  assert_ok(openreg_mempool_set_current(0, mempool));
  openreg_block_free(take(0, 0, 512)); /* reserves */
  for (int i = 0; i < 3; i++) {
    block = take(0, 0, 512);
    assert_true(block->address != address);
    openreg_block_free(block);
  }
  assert_int_equal(again_of(0)->times, 2); /* theirs, too, are not accounted for each time */
  assert_ok(openreg_mempool_set_current(0, 0));
  assert_ok(openreg_mempool_release(mempool));
}

/* Ages are counted in searches, each of which must be one. */
static void where_garbage_is_collected_each_is_accounted_for(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.garbage_collection_threshold = 0.5;
  set_settings(settings);
  assert_ok(openreg_memory_set_fraction(0, 0.75));
  for (int i = 0; i < 3; i++)
    openreg_block_free(take(0, 0, 512));
  assert_null(again_of(0)->block);
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
  openreg_memory_observe(count_event);
  openreg_block_free(block);
  for (int i = 0; i < 3; i++)
    openreg_block_free(take(0, 0, 512));
  openreg_memory_observe(NULL);
  assert_int_equal(events, 7);
}

/* ---- at random ------------------------------------------------------------------------------- */

static uint32_t seed = 7;

static uint32_t random_below(uint32_t bound) {
  seed = seed * 1664525 + 1013904223;
  return (seed >> 8) % bound;
}

static void looking_changes_nothing(void) {
  static const size_t sizes[] = {1, 512, 700, 4096, 1 << 20, 3 << 20};
  enum { HELD = 24, ROUNDS = 20000 };
  openreg_block *held[TEST_DEVICES][HELD] = {{NULL}};
  uint32_t slot = 0, size = 0, stream = 0;
  int64_t times = 0;
  for (int round = 0; round < ROUNDS; round++) {
    if (random_below(3) == 0) { /* else as in the round before: free it, allocate it again */
      slot = random_below(HELD);
      size = random_below(random_below(4) ? 4 : 6);
      stream = random_below(2);
    }
    for (int device = 0; device < TEST_DEVICES; device++) {
      openreg_block **block = &held[device][slot];
      times += device != LOOKED_AT && again_of(device)->times > 0;
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
  assert_true(times > 1000);
  for (int device = 0; device < TEST_DEVICES; device++)
    for (int i = 0; i < HELD; i++)
      openreg_block_free(held[device][i]);
  assert_alike();
}

static void looking_does_not_change_segments(void **state) {
  (void)state;
  looking_changes_nothing();
}

static void looking_does_not_change_expandable_segments(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.expandable_segments = true;
  set_settings(settings);
  looking_changes_nothing();
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(each_time_counts),
      ON_EMPTY_DEVICES(what_is_freed_so_is_not_found),
      ON_EMPTY_DEVICES(another_request_is_served_as_ever),
      ON_EMPTY_DEVICES(its_user_is_forgotten),
      ON_EMPTY_DEVICES(a_recorded_block_is_not_used_again_too_soon),
      ON_EMPTY_DEVICES(memory_pools_keep_theirs),
      ON_EMPTY_DEVICES(an_observer_sees_each),
      ON_EMPTY_DEVICES(where_garbage_is_collected_each_is_accounted_for),
      ON_EMPTY_DEVICES(looking_does_not_change_segments),
      ON_EMPTY_DEVICES(looking_does_not_change_expandable_segments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
