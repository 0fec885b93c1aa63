/* test_snapshot.c: a snapshot contains every segment and block, and agrees with the statistics. */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { SMALL = OPENREG_POOL_SMALL, LARGE = OPENREG_POOL_LARGE };

/* Which call of calloc fails, counted from 1; 0: none. And what happens between two attempts. */
static int failing_calloc;
static void (*meanwhile)(void);

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

void *__wrap_calloc(size_t count, size_t bytes) {
  if (failing_calloc && --failing_calloc == 0)
    return NULL;
  void (*once)(void) = meanwhile;
  meanwhile = NULL;
  if (once)
    once();
  return __real_calloc(count, bytes);
}

static void assert_block(const openreg_block_info *info, const void *address, size_t bytes,
                         size_t requested, int is) {
  assert_int_equal(info->address, (uintptr_t)address);
  assert_int_equal(info->bytes, bytes);
  assert_int_equal(info->requested_bytes, requested);
  assert_int_equal(info->state, is);
}

/* A large segment of stream 2: allocated, awaiting free, free. */
static void segments_show_their_blocks(void **state) {
  (void)state;
  struct gate gate;
  openreg_block *held = take(0, 2, 3 * MIB - 1), *awaited = take(0, 2, 2 * MIB);
  char *address = held->address;
  gate_close(&gate, 0, 7);
  assert_ok(openreg_block_record_stream(awaited, 7));
  openreg_block_free(awaited);

  openreg_memory_snapshot snapshot = snapshot_of(0);
  assert_int_equal(snapshot.segment_count, 1);
  assert_int_equal(snapshot.block_count, 3);
  const openreg_segment_info *segment = snapshot.segments;
  assert_int_equal(segment->address, (uintptr_t)address);
  assert_int_equal(segment->bytes, 20 * MIB);
  assert_int_equal(segment->allocated_bytes, 3 * MIB);
  assert_int_equal(segment->active_bytes, 5 * MIB);
  assert_int_equal(segment->requested_bytes, 5 * MIB - 1);
  assert_int_equal(segment->stream, 2);
  assert_int_equal(segment->kind, LARGE);
  assert_int_equal(segment->mempool, 0);
  assert_false(segment->is_expandable);
  assert_int_equal(segment->block_count, 3);
  assert_block(&snapshot.blocks[0], address, 3 * MIB, 3 * MIB - 1, OPENREG_BLOCK_ALLOCATED);
  assert_block(&snapshot.blocks[1], address + 3 * MIB, 2 * MIB, 2 * MIB,
               OPENREG_BLOCK_AWAITING_FREE);
  assert_block(&snapshot.blocks[2], address + 5 * MIB, 15 * MIB, 0, OPENREG_BLOCK_FREE);
  openreg_memory_free_snapshot(&snapshot);
  assert_snapshot_agrees(0);

  gate_open(&gate);
  openreg_block_free(held);
  assert_ok(openreg_cache_empty(0));
  assert_snapshot_agrees(0);
}

static void segments_come_by_address_with_their_owner(void **state) {
  (void)state;
  uint64_t mempool;
  assert_ok(openreg_mempool_create(false, NULL, &mempool));
  openreg_block *large = take(0, 1, 2 * MIB), *small = take(0, 4, 512);
  assert_ok(openreg_mempool_set_current(0, mempool));
  openreg_block *other = take(0, 1, 2 * MIB);
  assert_ok(openreg_mempool_set_current(0, 0));

  openreg_memory_snapshot snapshot = snapshot_of(0);
  assert_int_equal(snapshot.segment_count, 3); /* in the order of creation, from the bottom */
  for (int i = 0; i < 3; i++) {
    const openreg_segment_info *segment = &snapshot.segments[i];
    assert_int_equal(segment->stream, i == 1 ? 4 : 1);
    assert_int_equal(segment->kind, i == 1 ? SMALL : LARGE);
    assert_int_equal(segment->mempool, i == 2 ? mempool : 0);
    assert_int_equal(segment->block_count, 2);
  }
  assert_int_equal(snapshot.segments[2].address, (uintptr_t)other->address);
  openreg_memory_free_snapshot(&snapshot);
  openreg_block_free(large);
  openreg_block_free(small);
  openreg_block_free(other);
  assert_ok(openreg_mempool_release(mempool));
}

static void free_neighbours_are_one_block(void **state) {
  (void)state;
  openreg_block *blocks[3] = {take(0, 0, 512), take(0, 0, 1024), take(0, 0, 512)};
  openreg_block_free(blocks[1]);
  openreg_block_free(blocks[0]);
  assert_snapshot_agrees(0);
  openreg_block_free(blocks[2]);
  openreg_memory_snapshot snapshot = snapshot_of(0);
  assert_int_equal(snapshot.block_count, 1);
  assert_block(snapshot.blocks, (void *)snapshot.segments->address, 2 * MIB, 0, OPENREG_BLOCK_FREE);
  openreg_memory_free_snapshot(&snapshot);
}

static void a_device_without_segments_has_an_empty_snapshot(void **state) {
  (void)state;
  openreg_memory_snapshot snapshot = snapshot_of(1);
  assert_int_equal(snapshot.segment_count, 0);
  assert_int_equal(snapshot.block_count, 0);
  openreg_memory_free_snapshot(&snapshot);
  assert_null(snapshot.segments);
  openreg_memory_free_snapshot(&snapshot);
  openreg_memory_free_snapshot(NULL);
}

static void without_host_memory_a_snapshot_fails(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 512);
  for (int call = 1; call <= 2; call++) {
    openreg_memory_snapshot snapshot;
    failing_calloc = call;
    assert_status(openreg_memory_take_snapshot(0, &snapshot), OPENREG_OUT_OF_MEMORY);
    assert_error("out of host memory for a snapshot");
    assert_null(snapshot.segments);
    assert_null(snapshot.blocks);
    assert_int_equal(snapshot.segment_count, 0);
  }
  assert_snapshot_agrees(0);
  openreg_block_free(block);
}

enum { MANY = 3000 };
static openreg_block *late[MANY];

static void take_many(void) {
  for (int i = 0; i < MANY; i++)
    late[i] = take(0, i % 20, 512);
}

static void a_snapshot_has_what_is_added_while_memory_is_allocated(void **state) {
  (void)state;
  meanwhile = take_many;
  openreg_memory_snapshot snapshot = snapshot_of(0);
  assert_int_equal(add_up(&snapshot).allocation[SMALL], MANY);
  openreg_memory_free_snapshot(&snapshot);
  for (int i = 0; i < MANY; i++)
    openreg_block_free(late[i]);
}

static void bad_arguments_are_refused(void **state) {
  (void)state;
  openreg_memory_snapshot snapshot = {.block_count = 77};
  assert_status(openreg_memory_take_snapshot(-1, &snapshot), OPENREG_INVALID_DEVICE);
  assert_status(openreg_memory_take_snapshot(TEST_DEVICES, &snapshot), OPENREG_INVALID_DEVICE);
  assert_status(openreg_memory_take_snapshot(0, NULL), OPENREG_INVALID_ARGUMENT);
  assert_int_equal(snapshot.block_count, 77);
}

/* ---- while threads allocate ------------------------------------------------------------------ */

enum { WORKERS = 3, OPERATIONS = 30000, SNAPSHOTS = 300, SLOTS = 64 };

static _Atomic(openreg_block *) slots[SLOTS];
static atomic_int errors, working;

static void *work(void *number) {
  unsigned random = *(unsigned *)number;
  for (int i = 0; i < OPERATIONS; i++) {
    unsigned drawn = (unsigned)rand_r(&random);
    size_t bytes = drawn % 16 == 0 ? 1 + drawn % (2 * MIB) : 1 + drawn % (8 * KIB);
    openreg_block *block;
    openreg_status status =
        openreg_block_allocate((int)(drawn / 4 % 2), (int)(drawn / 8 % 3), bytes, &block);
    if (status == OPENREG_OK)
      openreg_block_free(atomic_exchange(&slots[drawn / 16 % SLOTS], block));
    else
      atomic_fetch_add(&errors, status != OPENREG_OUT_OF_MEMORY);
    if (drawn % 4096 == 0 && openreg_cache_empty((int)(drawn / 4096 % 2)) != OPENREG_OK)
      atomic_fetch_add(&errors, 1);
  }
  atomic_fetch_sub(&working, 1);
  return NULL;
}

/* Each statistic is consistent with itself and with the others. */
static void assert_stats_are_consistent(const openreg_memory_stats *stats) {
  for (int kind = 0; kind < OPENREG_POOL_KINDS; kind++) {
#define X(name)                                                                                    \
  assert_int_equal(stats->name[kind].current,                                                      \
                   stats->name[kind].allocated - stats->name[kind].freed);                         \
  assert_true(stats->name[kind].peak >= stats->name[kind].current);                                \
  assert_int_equal(stats->name[0].current, stats->name[SMALL].current + stats->name[LARGE].current);
    OPENREG_MEMORY_STAT_LIST(X)
#undef X
    assert_true(stats->allocated_bytes[kind].current <= stats->active_bytes[kind].current);
    assert_true(stats->requested_bytes[kind].current <= stats->active_bytes[kind].current);
    assert_true(stats->active_bytes[kind].current + stats->inactive_split_bytes[kind].current <=
                stats->reserved_bytes[kind].current);
  }
}

/* A snapshot lies between the statistics before and after it: the first minus what was freed
 * meanwhile, or plus what was allocated. */
static void take_snapshot_between(int device) {
  openreg_memory_stats before = stats_of(device);
  openreg_memory_snapshot snapshot = snapshot_of(device);
  openreg_memory_stats after = stats_of(device);
  totals sums = add_up(&snapshot);
  openreg_memory_free_snapshot(&snapshot);
  assert_stats_are_consistent(&before);
  for (int kind = 0; kind < OPENREG_POOL_KINDS; kind++) {
#define X(name)                                                                                    \
  assert_true(sums.name[kind] >=                                                                   \
              before.name[kind].current - (after.name[kind].freed - before.name[kind].freed));     \
  assert_true(sums.name[kind] <= before.name[kind].current + after.name[kind].allocated -          \
                                     before.name[kind].allocated);
    OPENREG_MEMORY_STAT_LIST(X)
#undef X
  }
}

static void each_snapshot_is_consistent_while_threads_work(void **state) {
  (void)state;
  pthread_t threads[WORKERS];
  unsigned numbers[WORKERS] = {1, 2, 3};
  atomic_store(&working, WORKERS);
  for (int i = 0; i < WORKERS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, work, &numbers[i]), 0);
  for (int i = 0; i < SNAPSHOTS || atomic_load(&working) > 0; i++)
    take_snapshot_between(i % 2);
  for (int i = 0; i < WORKERS; i++)
    assert_int_equal(pthread_join(threads[i], NULL), 0);
  assert_int_equal(atomic_load(&errors), 0);
  for (int device = 0; device < TEST_DEVICES; device++)
    assert_snapshot_agrees(device);
  for (int i = 0; i < SLOTS; i++)
    openreg_block_free(atomic_exchange(&slots[i], NULL));
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(segments_show_their_blocks),
      ON_EMPTY_DEVICES(segments_come_by_address_with_their_owner),
      ON_EMPTY_DEVICES(free_neighbours_are_one_block),
      ON_EMPTY_DEVICES(a_device_without_segments_has_an_empty_snapshot),
      ON_EMPTY_DEVICES(without_host_memory_a_snapshot_fails),
      ON_EMPTY_DEVICES(a_snapshot_has_what_is_added_while_memory_is_allocated),
      ON_EMPTY_DEVICES(bad_arguments_are_refused),
      ON_EMPTY_DEVICES(each_snapshot_is_consistent_while_threads_work),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
