/* test_observer.c: the observer is told of everything that happens, in its order, with the figures
 * of each thing. */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { MOST = 64 };

static openreg_memory_event events[MOST];
static int count;
static pthread_t teller;

static void keep(const openreg_memory_event *event) {
  teller = pthread_self();
  if (count < MOST)
    events[count] = *event;
  count++;
}

static int observed(void **state) {
  devices_reset(state);
  count = 0;
  openreg_memory_observe(keep);
  return 0;
}

static int not_observed(void **state) {
  openreg_memory_observe(NULL);
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

static void a_block_from_its_reservation_to_its_release(void **state) {
  (void)state;
  openreg_block *block = take(0, 3, 3 * MIB - 100);
  void *address = block->address;
  openreg_block_free(block);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(count, 5);
  assert_event(0, OPENREG_MEMORY_RESERVED, 3, address, 4 * MIB, 0);
  assert_event(1, OPENREG_MEMORY_ALLOCATED, 3, address, 3 * MIB, 0);
  assert_event(2, OPENREG_MEMORY_FREE_REQUESTED, 3, address, 3 * MIB, 0);
  assert_event(3, OPENREG_MEMORY_FREE_COMPLETED, 3, address, 3 * MIB, 0);
  assert_event(4, OPENREG_MEMORY_RELEASED, 3, address, 4 * MIB, 0);
}

static void a_segment_grows_by_a_reservation_of_its_own(void **state) {
  (void)state;
  openreg_block *low = take(0, 0, 3 * MIB), *high = take(0, 0, 3 * MIB);
  assert_int_equal(count, 4);
  assert_event(2, OPENREG_MEMORY_RESERVED, 0, (char *)low->address + 4 * MIB, 2 * MIB, 0);
  assert_event(3, OPENREG_MEMORY_ALLOCATED, 0, high->address, 3 * MIB, 0);
  openreg_block_free(low);
  openreg_block_free(high);
}

static void blocks_of_nothing_are_nothing(void **state) {
  (void)state;
  openreg_block_free(take(0, 0, 0));
  openreg_block_free(NULL);
  assert_int_equal(count, 0);
}

static openreg_status wait_until_open(void *open) {
  while (!atomic_load((atomic_int *)open))
    ;
  return OPENREG_OK;
}

static void a_deferred_block_is_free_when_its_streams_have_finished(void **state) {
  (void)state;
  atomic_int open = 0;
  openreg_block *block = take(0, 0, 512);
  void *address = block->address;
  assert_ok(openreg_stream_launch(0, 7, &wait_until_open, &open));
  assert_ok(openreg_block_record_stream(block, 7));
  openreg_block_free(block);
  assert_int_equal(count, 3);
  assert_event(2, OPENREG_MEMORY_FREE_REQUESTED, 0, address, 512, 0);
  atomic_store(&open, 1);
  assert_ok(openreg_stream_synchronize(0, 7));
  openreg_block_free(take(0, 0, 0)); /* any allocation looks */
  assert_int_equal(count, 4);
  assert_event(3, OPENREG_MEMORY_FREE_COMPLETED, 0, address, 512, 0);
}

static void a_request_that_fails_says_what_was_free(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 40 * MIB), *none;
  assert_status(openreg_block_allocate(0, 9, 30 * MIB + 5, &none), OPENREG_OUT_OF_MEMORY);
  assert_int_equal(count, 3);
  assert_event(2, OPENREG_MEMORY_EXHAUSTED, 9, (void *)(uintptr_t)(24 * MIB), 30 * MIB + 5, 0);
  openreg_block_free(block);
}

static void the_memory_pool_is_named(void **state) {
  (void)state;
  uint64_t mempool;
  openreg_block *none;
  assert_ok(openreg_mempool_create(false, &mempool));
  assert_ok(openreg_mempool_set_current(0, mempool));
  openreg_block *block = take(0, 0, 512);
  void *address = block->address;
  assert_status(openreg_block_allocate(0, 0, CAPACITY, &none), OPENREG_OUT_OF_MEMORY);
  assert_ok(openreg_mempool_set_current(0, 0));
  openreg_block_free(block);
  uintptr_t segment = events[0].address;
  assert_ok(openreg_mempool_destroy(mempool));
  assert_int_equal(count, 6);
  assert_event(0, OPENREG_MEMORY_RESERVED, 0, (void *)segment, 2 * MIB, mempool);
  assert_event(1, OPENREG_MEMORY_ALLOCATED, 0, address, 512, mempool);
  assert_event(2, OPENREG_MEMORY_EXHAUSTED, 0, (void *)(uintptr_t)(62 * MIB), CAPACITY, mempool);
  assert_event(3, OPENREG_MEMORY_FREE_REQUESTED, 0, address, 512, mempool);
  assert_event(4, OPENREG_MEMORY_FREE_COMPLETED, 0, address, 512, mempool);
  assert_event(5, OPENREG_MEMORY_RELEASED, 0, (void *)segment, 2 * MIB, mempool);
}

static void only_the_latest_observer_is_told(void **state) {
  (void)state;
  openreg_memory_observe(NULL);
  openreg_block *block = take(0, 0, 512);
  assert_int_equal(count, 0);
  openreg_memory_observe(keep);
  openreg_block_free(block);
  assert_int_equal(count, 2);
}

static void *take_one(void *result) {
  *(openreg_block **)result = take(0, 0, 512);
  return NULL;
}

static void it_is_told_by_the_thread_that_does_it(void **state) {
  (void)state;
  pthread_t thread;
  openreg_block *block = NULL;
  assert_int_equal(pthread_create(&thread, NULL, take_one, &block), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(count, 2);
  assert_true(pthread_equal(teller, thread));
  openreg_block_free(block);
  assert_true(pthread_equal(teller, pthread_self()));
}

/* ---- threads --------------------------------------------------------------------------------- */

static atomic_bool stop;
static atomic_int told;

static void tell(const openreg_memory_event *event) {
  (void)event;
  atomic_fetch_add(&told, 1);
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

/* An observer that was taken away is not called any more, whoever is at work. */
static void no_call_outlasts_the_exchange(void **state) {
  (void)state;
  pthread_t threads[TEST_DEVICES];
  int devices[TEST_DEVICES] = {0, 1};
  openreg_memory_observe(NULL);
  atomic_store(&stop, false);
  for (int i = 0; i < TEST_DEVICES; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, allocate_until_stopped, &devices[i]), 0);
  for (int round = 0; round < 20; round++) {
    int before = atomic_load(&told);
    openreg_memory_observe(tell);
    while (atomic_load(&told) == before)
      ;
    openreg_memory_observe(NULL);
    int after = atomic_load(&told);
    openreg_memory_stats from = stats_of(0), to;
    do /* work goes on */
      to = stats_of(0);
    while (to.allocation[0].allocated < from.allocation[0].allocated + 10);
    assert_int_equal(atomic_load(&told), after);
  }
  atomic_store(&stop, true);
  for (int i = 0; i < TEST_DEVICES; i++)
    assert_int_equal(pthread_join(threads[i], NULL), 0);
}

#define OBSERVED(test) cmocka_unit_test_setup_teardown(test, observed, not_observed)

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      OBSERVED(a_block_from_its_reservation_to_its_release),
      OBSERVED(a_segment_grows_by_a_reservation_of_its_own),
      OBSERVED(blocks_of_nothing_are_nothing),
      OBSERVED(a_deferred_block_is_free_when_its_streams_have_finished),
      OBSERVED(a_request_that_fails_says_what_was_free),
      OBSERVED(the_memory_pool_is_named),
      OBSERVED(it_is_told_by_the_thread_that_does_it),
      OBSERVED(only_the_latest_observer_is_told),
      OBSERVED(no_call_outlasts_the_exchange),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
