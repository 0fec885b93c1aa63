/* test_observer.c: observers see every event, in order, with its values. */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { MOST = 64 };

static openreg_memory_event events[MOST];
static int count;
static pthread_t event_thread;

static void keep(const openreg_memory_event *event) {
  event_thread = pthread_self();
  if (count < MOST)
    events[count] = *event;
  count++;
}

static int observed(void **state) {
  devices_reset(state);
  count = 0;
  assert_ok(openreg_memory_add_observer(keep));
  return 0;
}

static int not_observed(void **state) {
  openreg_memory_remove_observer(keep);
  return devices_check(state);
}

static void assert_event(int i, openreg_memory_action action, int stream, const void *address,
                         size_t bytes, uint64_t mempool) {
  assert_true(i < count);
  assert_int_equal(events[i].action, action);
  assert_int_equal(events[i].device, 0);
  assert_int_equal(events[i].stream, stream);
  assert_int_equal(events[i].address, (uintptr_t)address);
  assert_int_equal(events[i].bytes, bytes);
  assert_int_equal(events[i].mempool, mempool);
}

static void a_block_from_its_segments_begin_to_its_end(void **state) {
  (void)state;
  openreg_block *block = take(0, 3, 3 * MIB - 100);
  void *address = block->address;
  openreg_block_free(block);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(count, 5);
  assert_event(0, OPENREG_MEMORY_SEGMENT_ALLOCATED, 3, address, 20 * MIB, 0);
  assert_event(1, OPENREG_MEMORY_ALLOCATED, 3, address, 3 * MIB - 100, 0);
  assert_event(2, OPENREG_MEMORY_FREE_REQUESTED, 3, address, 3 * MIB - 100, 0);
  assert_event(3, OPENREG_MEMORY_FREE_COMPLETED, 3, address, 3 * MIB - 100, 0);
  assert_event(4, OPENREG_MEMORY_SEGMENT_FREED, 3, address, 20 * MIB, 0);
  assert_int_equal(events[0].block_bytes, 20 * MIB);
  assert_int_equal(events[1].block_bytes, 3 * MIB);
  assert_int_equal(events[2].block_bytes, 3 * MIB);
}

static void a_request_from_the_cache_reserves_no_segment(void **state) {
  (void)state;
  openreg_block *low = take(0, 0, 3 * MIB), *high = take(0, 0, 3 * MIB);
  assert_int_equal(count, 3);
  assert_event(2, OPENREG_MEMORY_ALLOCATED, 0, high->address, 3 * MIB, 0);
  openreg_block_free(low);
  openreg_block_free(high);
}

/* 15 MiB in a page of 20, and 10 more, for which another page is mapped. Both are unmapped
 * together. */
static void pages_of_expandable_segments_come_and_go(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.expandable_segments = true;
  set_settings(settings);
  openreg_block *low = take(0, 2, 15 * MIB), *high = take(0, 2, 10 * MIB);
  char *address = low->address;
  assert_int_equal(count, 4);
  assert_event(0, OPENREG_MEMORY_SEGMENT_MAPPED, 2, address, 20 * MIB, 0);
  assert_event(1, OPENREG_MEMORY_ALLOCATED, 2, address, 15 * MIB, 0);
  assert_event(2, OPENREG_MEMORY_SEGMENT_MAPPED, 2, address + 20 * MIB, 20 * MIB, 0);
  assert_event(3, OPENREG_MEMORY_ALLOCATED, 2, address + 15 * MIB, 10 * MIB, 0);
  openreg_block_free(low);
  openreg_block_free(high);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(count, 9);
  assert_event(8, OPENREG_MEMORY_SEGMENT_UNMAPPED, 2, address, 40 * MIB, 0);
}

/* Large segments first; within a pool in the order of streams, sizes, and age. */
static void emptying_goes_through_large_segments_before_small_ones(void **state) {
  (void)state;
  openreg_block *blocks[] = {take(0, 0, 512), take(0, 4, 10 * MIB), take(0, 2, 14 * MIB),
                             take(0, 2, 12 * MIB)};
  const void *addresses[4];
  for (int i = 0; i < 4; i++) {
    addresses[i] = blocks[i]->address;
    openreg_block_free(blocks[i]);
  }
  count = 0;
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(count, 4);
  assert_event(0, OPENREG_MEMORY_SEGMENT_FREED, 2, addresses[3], 12 * MIB, 0);
  assert_event(1, OPENREG_MEMORY_SEGMENT_FREED, 2, addresses[2], 14 * MIB, 0);
  assert_event(2, OPENREG_MEMORY_SEGMENT_FREED, 4, addresses[1], 10 * MIB, 0);
  assert_event(3, OPENREG_MEMORY_SEGMENT_FREED, 0, addresses[0], 2 * MIB, 0);
}

static void empty_blocks_cause_no_events(void **state) {
  (void)state;
  openreg_block_free(take(0, 0, 0));
  openreg_block_free(NULL);
  assert_int_equal(count, 0);
}

static void a_block_that_waits_is_free_at_the_next_request(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 512);
  void *address = block->address;
  assert_ok(openreg_block_record_stream(block, 7));
  openreg_block_free(block);
  assert_int_equal(count, 3);
  assert_event(2, OPENREG_MEMORY_FREE_REQUESTED, 0, address, 512, 0);
  block = take(0, 0, 100);
  assert_int_equal(count, 5);
  assert_event(3, OPENREG_MEMORY_FREE_COMPLETED, 0, address, 512, 0);
  assert_event(4, OPENREG_MEMORY_ALLOCATED, 0, address, 100, 0);
  openreg_block_free(block);
}

static void a_request_that_fails_says_what_was_free(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 40 * MIB);
  refused(0, 9, 30 * MIB + 5);
  assert_int_equal(count, 3);
  assert_event(2, OPENREG_MEMORY_EXHAUSTED, 9, (void *)(uintptr_t)(24 * MIB), 30 * MIB + 512, 0);
  openreg_block_free(block);
}

static void a_rejected_request_causes_no_event(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.throws_on_oom = true;
  set_settings(settings);
  refused(0, 0, 70 * MIB);
  assert_int_equal(count, 0);
}

static void the_memory_pool_is_named(void **state) {
  (void)state;
  uint64_t mempool;
  openreg_block *none;
  assert_ok(openreg_mempool_create(false, NULL, &mempool));
  assert_ok(openreg_mempool_set_current(0, mempool));
  openreg_block *block = take(0, 0, 512);
  void *address = block->address;
  assert_status(openreg_block_allocate(0, 0, CAPACITY, &none), OPENREG_OUT_OF_MEMORY);
  assert_ok(openreg_mempool_set_current(0, 0));
  openreg_block_free(block);
  uintptr_t segment = events[0].address;
  assert_ok(openreg_mempool_release(mempool));
  assert_ok(openreg_mempool_empty(mempool));
  assert_int_equal(count, 6);
  assert_event(0, OPENREG_MEMORY_SEGMENT_ALLOCATED, 0, (void *)segment, 2 * MIB, mempool);
  assert_event(1, OPENREG_MEMORY_ALLOCATED, 0, address, 512, mempool);
  assert_event(2, OPENREG_MEMORY_EXHAUSTED, 0, (void *)(uintptr_t)(62 * MIB), CAPACITY, mempool);
  assert_event(3, OPENREG_MEMORY_FREE_REQUESTED, 0, address, 512, mempool);
  assert_event(4, OPENREG_MEMORY_FREE_COMPLETED, 0, address, 512, mempool);
  assert_event(5, OPENREG_MEMORY_SEGMENT_FREED, 0, (void *)segment, 2 * MIB, mempool);
}

static int others[OPENREG_MEMORY_OBSERVERS - 1];

static void count_0(const openreg_memory_event *event) {
  (void)event;
  others[0]++;
}
static void count_1(const openreg_memory_event *event) {
  (void)event;
  others[1]++;
}
static void count_2(const openreg_memory_event *event) {
  (void)event;
  others[2]++;
}
static void one_too_many(const openreg_memory_event *event) {
  (void)event;
}

static void all_observers_see_each_event(void **state) {
  (void)state;
  assert_ok(openreg_memory_add_observer(count_0));
  assert_ok(openreg_memory_add_observer(keep)); /* again, without effect */
  assert_ok(openreg_memory_add_observer(count_1));
  assert_ok(openreg_memory_add_observer(count_2));
  assert_status(openreg_memory_add_observer(one_too_many), OPENREG_NOT_PERMITTED);
  assert_status(openreg_memory_add_observer(NULL), OPENREG_INVALID_ARGUMENT);
  openreg_block *block = take(0, 0, 512);
  openreg_memory_remove_observer(count_0);
  openreg_memory_remove_observer(one_too_many);
  openreg_block_free(block);
  openreg_memory_remove_observer(count_1);
  openreg_memory_remove_observer(count_2);
  assert_int_equal(count, 4); /* a segment and a block, and the two events of the free */
  assert_int_equal(others[0], 2);
  assert_int_equal(others[1], 4);
  assert_int_equal(others[2], 4);
}

static void a_removed_observer_sees_nothing(void **state) {
  (void)state;
  openreg_memory_remove_observer(keep);
  openreg_block *block = take(0, 0, 512);
  assert_int_equal(count, 0);
  assert_ok(openreg_memory_add_observer(keep));
  openreg_block_free(block);
  assert_int_equal(count, 2);
}

/* Operations on the fast path are flushed later than they happened. */
static void earlier_operations_cause_no_event(void **state) {
  (void)state;
  openreg_memory_remove_observer(keep);
  for (int i = 0; i < 3; i++)
    openreg_block_free(take(0, 0, 512));
  assert_ok(openreg_memory_add_observer(keep));
  assert_int_equal(stats_of(0).allocation[OPENREG_POOL_ALL].freed, 3);
  assert_int_equal(count, 0);
}

static void *take_one(void *result) {
  *(openreg_block **)result = take(0, 0, 512);
  return NULL;
}

static void events_are_reported_by_the_thread_that_causes_them(void **state) {
  (void)state;
  pthread_t thread;
  openreg_block *block = NULL;
  assert_int_equal(pthread_create(&thread, NULL, take_one, &block), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(count, 2);
  assert_true(pthread_equal(event_thread, thread));
  openreg_block_free(block);
  assert_true(pthread_equal(event_thread, pthread_self()));
}

/* ---- threads --------------------------------------------------------------------------------- */

static atomic_bool stop;
static atomic_int call_count;

static void count_call(const openreg_memory_event *event) {
  (void)event;
  atomic_fetch_add(&call_count, 1);
}

static void *allocate_until_stopped(void *device) {
  while (!atomic_load(&stop)) {
    openreg_block *block;
    if (openreg_block_allocate(*(int *)device, 0, 512, &block) != OPENREG_OK)
      break;
    openreg_block_free(block);
  }
  return NULL;
}

/* A removed observer is not called any more, whatever other threads do. */
static void a_removed_observer_is_not_running(void **state) {
  (void)state;
  pthread_t threads[TEST_DEVICES];
  int devices[TEST_DEVICES] = {0, 1};
  openreg_memory_remove_observer(keep);
  atomic_store(&stop, false);
  for (int i = 0; i < TEST_DEVICES; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, allocate_until_stopped, &devices[i]), 0);
  for (int round = 0; round < 20; round++) {
    int before = atomic_load(&call_count);
    assert_ok(openreg_memory_add_observer(count_call));
    while (atomic_load(&call_count) == before)
      ;
    openreg_memory_remove_observer(count_call);
    int after = atomic_load(&call_count);
    openreg_memory_stats from = stats_of(0), to;
    do /* work continues */
      to = stats_of(0);
    while (to.allocation[0].allocated < from.allocation[0].allocated + 10);
    assert_int_equal(atomic_load(&call_count), after);
  }
  atomic_store(&stop, true);
  for (int i = 0; i < TEST_DEVICES; i++)
    assert_int_equal(pthread_join(threads[i], NULL), 0);
}

#define OBSERVED(test) cmocka_unit_test_setup_teardown(test, observed, not_observed)

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      OBSERVED(a_block_from_its_segments_begin_to_its_end),
      OBSERVED(a_request_from_the_cache_reserves_no_segment),
      OBSERVED(pages_of_expandable_segments_come_and_go),
      OBSERVED(emptying_goes_through_large_segments_before_small_ones),
      OBSERVED(empty_blocks_cause_no_events),
      OBSERVED(a_block_that_waits_is_free_at_the_next_request),
      OBSERVED(a_request_that_fails_says_what_was_free),
      OBSERVED(a_rejected_request_causes_no_event),
      OBSERVED(the_memory_pool_is_named),
      OBSERVED(events_are_reported_by_the_thread_that_causes_them),
      OBSERVED(earlier_operations_cause_no_event),
      OBSERVED(all_observers_see_each_event),
      OBSERVED(a_removed_observer_sees_nothing),
      OBSERVED(a_removed_observer_is_not_running),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
