/* test_threads.c: threads that allocate and free concurrently, on one device and on two, their own
 * blocks and each other's. */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { THREADS = 4, OPERATIONS = 20000, SLOTS = 64 };

/* Any thread can swap a block out of its slot and free it. */
static _Atomic(openreg_block *) slots[SLOTS];
static atomic_int errors;

struct worker {
  pthread_t thread;
  unsigned random;
  bool both_devices;
};

static void expect(bool truth) {
  if (!truth)
    atomic_fetch_add(&errors, 1);
}

static void hand_back(openreg_block *block) {
  if (!block)
    return;
  expect(block->user == block->address);
  expect(openreg_block_find(block->address) == block);
  openreg_block_free(block);
}

static void *work(void *argument) {
  struct worker *worker = argument;
  for (int i = 0; i < OPERATIONS; i++) {
    unsigned random = (unsigned)rand_r(&worker->random);
    int device = worker->both_devices ? random / 4 % TEST_DEVICES : 0;
    size_t bytes = random % 16 == 0 ? 1 + random % (3 * MIB) : 1 + random % (8 * KIB);
    openreg_block *block;
    openreg_status status = openreg_block_allocate(device, (int)(random / 8 % 3), bytes, &block);
    if (status == OPENREG_OK) {
      block->user = block->address;
      if (random % 32 == 1)
        expect(openreg_block_record_stream(block, 40) == OPENREG_OK);
      hand_back(atomic_exchange(&slots[random / 16 % SLOTS], block));
    } else {
      expect(status == OPENREG_OUT_OF_MEMORY);
    }
    openreg_memory_stats stats;
    if (i % 1000 == 0) {
      expect(openreg_memory_get_stats(device, &stats) == OPENREG_OK);
      expect(stats.allocated_bytes[0].current <= stats.active_bytes[0].current);
      expect(stats.active_bytes[0].current <= stats.reserved_bytes[0].current);
      expect(openreg_memory_is_valid(device));
      expect(openreg_cache_empty(device) == OPENREG_OK);
    }
  }
  return NULL;
}

static void hammer(bool both_devices) {
  struct worker workers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (struct worker){.random = (unsigned)i + 1, .both_devices = both_devices};
    assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
  for (int i = 0; i < SLOTS; i++)
    hand_back(atomic_exchange(&slots[i], NULL));
  assert_int_equal(atomic_load(&errors), 0);
  for (int device = 0; device < TEST_DEVICES; device++) {
    openreg_memory_stats stats = stats_of(device);
    assert_int_equal(stats.allocation[0].allocated, stats.allocation[0].freed);
    assert_int_equal(stats.allocation[0].current, 0);
  }
  assert_true(stats_of(0).allocation[0].allocated > OPERATIONS);
  assert_int_equal(stats_of(1).allocation[0].allocated > OPERATIONS, both_devices);
}

static void threads_on_one_device(void **state) {
  (void)state;
  hammer(false);
}

static void threads_on_two_devices(void **state) {
  (void)state;
  hammer(true);
}

/* Allocates in a sequence of its own pools, while others empty the caches. */
static void *work_in_pools(void *argument) {
  struct worker *worker = argument;
  for (int i = 0; i < OPERATIONS / 20; i++) {
    int device = i % TEST_DEVICES;
    uint64_t mempool;
    openreg_block **blocks = NULL, *inside = NULL, *outside = NULL;
    size_t count = 0;
    size_t bytes = 1 + (size_t)rand_r(&worker->random) % MIB;
    expect(openreg_mempool_create(i % 2, NULL, &mempool) == OPENREG_OK);
    expect(openreg_mempool_set_current(device, mempool) == OPENREG_OK);
    expect(openreg_block_allocate(device, 0, bytes, &inside) == OPENREG_OK);
    expect(openreg_mempool_set_current(device, 0) == OPENREG_OK);
    expect(openreg_block_allocate(device, 0, bytes, &outside) == OPENREG_OK);
    expect(openreg_mempool_blocks(device, mempool, &blocks, &count) == OPENREG_OK);
    /* Requests of other threads may have used a pool with OPENREG_MEMPOOL_USE_ON_OOM. */
    expect(count == 1 || (i % 2 == OPENREG_MEMPOOL_USE_ON_OOM && count > 1));
    free(blocks);
    openreg_block_free(inside);
    openreg_block_free(outside);
    expect(openreg_mempool_release(mempool) == OPENREG_OK);
    expect(i % 50 != 0 || openreg_memory_is_valid(device));
    expect(i % 10 != 0 || openreg_cache_empty(device) == OPENREG_OK);
  }
  return NULL;
}

static void threads_that_have_memory_pools_of_their_own(void **state) {
  (void)state;
  struct worker workers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (struct worker){.random = (unsigned)i + 1};
    assert_int_equal(pthread_create(&workers[i].thread, NULL, work_in_pools, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
  assert_int_equal(atomic_load(&errors), 0);
  for (int device = 0; device < TEST_DEVICES; device++) {
    assert_snapshot_agrees(device);
    assert_ok(openreg_cache_empty(device));
    assert_int_equal(ledger_free(device), CAPACITY);
  }
}

static void *first_use(void *argument) {
  openreg_block **block = argument;
  expect(openreg_block_allocate(1, 0, 512, block) == OPENREG_OK);
  return NULL;
}

/* Runs first, on a device that was never used. */
static void threads_that_open_a_device_at_once_get_the_same(void **state) {
  (void)state;
  pthread_t threads[THREADS];
  openreg_block *blocks[THREADS] = {0};
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, first_use, &blocks[i]), 0);
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_join(threads[i], NULL), 0);
  assert_int_equal(atomic_load(&errors), 0);
  assert_int_equal(stats_of(1).allocation[0].current, THREADS);
  for (int i = 0; i < THREADS; i++)
    openreg_block_free(blocks[i]);
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(threads_that_open_a_device_at_once_get_the_same),
      ON_EMPTY_DEVICES(threads_on_one_device),
      ON_EMPTY_DEVICES(threads_on_two_devices),
      ON_EMPTY_DEVICES(threads_that_have_memory_pools_of_their_own),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
