/* test_checkpoint.c: a checkpoint of a memory pool restores each allocated block at its address. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

enum { ALL = OPENREG_POOL_ALL, MOST = 64, ROUNDS = 40 };

static openreg_mempool_checkpoint *checkpoint_of(uint64_t mempool) {
  openreg_mempool_checkpoint *checkpoint = NULL;
  assert_ok(openreg_mempool_take_checkpoint(0, mempool, &checkpoint));
  return checkpoint;
}

/* Frees all allocated blocks of a pool, also those that are in use. */
static size_t free_all(uint64_t mempool) {
  openreg_block **blocks = NULL;
  size_t count;
  assert_ok(openreg_mempool_blocks(0, mempool, &blocks, &count));
  for (size_t i = 0; i < count; i++)
    openreg_block_free(blocks[i]);
  free(blocks);
  return count;
}

static size_t restore(const openreg_mempool_checkpoint *checkpoint) {
  openreg_block **blocks = NULL;
  size_t count;
  assert_ok(openreg_mempool_restore(checkpoint, &blocks, &count));
  for (size_t i = 0; i < count; i++) {
    assert_ptr_equal(openreg_block_find(blocks[i]->address), blocks[i]);
    assert_null(blocks[i]->user);
  }
  free(blocks);
  return count;
}

/* The allocated blocks of a pool, as the snapshot shows them. */
struct pool_state {
  uintptr_t address[MOST];
  size_t bytes[MOST], count;
};

static struct pool_state pool_state_of(uint64_t mempool) {
  struct pool_state pool_state;
  memset(&pool_state, 0, sizeof pool_state);
  openreg_memory_snapshot snapshot = snapshot_of(0);
  for (size_t i = 0; i < snapshot.segment_count; i++) {
    const openreg_segment_info *segment = &snapshot.segments[i];
    for (size_t j = 0; segment->mempool == mempool && j < segment->block_count; j++) {
      const openreg_block_info *block = &snapshot.blocks[segment->first_block + j];
      if (block->state == OPENREG_BLOCK_FREE)
        continue;
      assert_true(pool_state.count < MOST);
      pool_state.address[pool_state.count] = block->address;
      pool_state.bytes[pool_state.count++] = block->bytes;
    }
  }
  openreg_memory_free_snapshot(&snapshot);
  return pool_state;
}

/* Randomly allocates and frees blocks of a pool on streams 0 and 1. */
static void play(uint64_t mempool, unsigned *random, int steps) {
  openreg_block **held = NULL;
  size_t count;
  for (int i = 0; i < steps; i++) {
    assert_ok(openreg_mempool_blocks(0, mempool, &held, &count));
    if (count > 0 && (rand_r(random) % 2 || count == MOST / 2)) {
      openreg_block_free(held[(size_t)rand_r(random) % count]);
    } else {
      size_t bytes = 1 + (size_t)rand_r(random) % (rand_r(random) % 3 ? 700 * KIB : 4 * MIB);
      openreg_block *block = NULL;
      assert_ok(openreg_mempool_set_current(0, mempool));
      (void)openreg_block_allocate(0, rand_r(random) % 2, bytes, &block);
      assert_ok(openreg_mempool_set_current(0, 0));
    }
    free(held);
    held = NULL;
  }
}

static void play_and_restore(bool expandable) {
  openreg_memory_settings settings = default_settings();
  settings.expandable_segments = expandable;
  settings.large_segment_bytes = 12 * MIB;
  set_settings(settings);
  unsigned random = 7;
  uint64_t mempool = make_mempool(false);
  for (int round = 0; round < ROUNDS; round++) {
    play(mempool, &random, 30);
    openreg_mempool_checkpoint *checkpoint = checkpoint_of(mempool);
    struct pool_state before = pool_state_of(mempool);
    play(mempool, &random, 30);
    free_all(mempool);
    assert_int_equal(restore(checkpoint), before.count);
    struct pool_state after = pool_state_of(mempool);
    assert_memory_equal(&before, &after, sizeof before);
    assert_snapshot_agrees(0);
    assert_true(openreg_memory_is_valid(0));
    free(checkpoint);
  }
  free_all(mempool);
  assert_ok(openreg_mempool_release(mempool));
}

static void blocks_are_restored_at_their_addresses(void **state) {
  (void)state;
  play_and_restore(false);
}

static void blocks_of_expandable_segments_are_restored_at_their_addresses(void **state) {
  (void)state;
  play_and_restore(true);
}

/* CUDA allocates each block of the checkpoint, and then frees those that were free. */
static void the_statistics_are_those_of_allocating_and_freeing(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false);
  openreg_block *first = take_in(mempool, 0, 0, 512);
  take_in(mempool, 0, 0, 1024);
  openreg_block_free(first);
  openreg_mempool_checkpoint *checkpoint = checkpoint_of(mempool);
  assert_int_equal(free_all(mempool), 1);
  assert_ok(openreg_memory_reset_accumulated(0));
  assert_int_equal(restore(checkpoint), 1);
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.allocation[ALL].allocated, 3);
  assert_int_equal(stats.allocation[ALL].freed, 2);
  assert_int_equal(stats.allocated_bytes[ALL].allocated, 2 * MIB);
  assert_int_equal(stats.allocated_bytes[ALL].freed, 2 * MIB - 1024);
  assert_int_equal(stats.requested_bytes[ALL].current, 1024);
  assert_int_equal(stats.inactive_split[ALL].current, 2);
  assert_int_equal(stats.inactive_split_bytes[ALL].current, 2 * MIB - 1024);
  assert_int_equal(stats.device_allocs, 0);
  free_all(mempool);
  free(checkpoint);
  assert_ok(openreg_mempool_release(mempool));
}

static void segments_reserved_since_the_checkpoint_stay_free(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false);
  take_in(mempool, 0, 0, 512);
  openreg_mempool_checkpoint *checkpoint = checkpoint_of(mempool);
  take_in(mempool, 0, 0, 12 * MIB);
  free_all(mempool);
  assert_int_equal(restore(checkpoint), 1);
  assert_int_equal(stats_of(0).reserved_bytes[ALL].current, 14 * MIB);
  assert_int_equal(stats_of(0).active_bytes[ALL].current, 512);
  free_all(mempool);
  free(checkpoint);
  assert_ok(openreg_mempool_release(mempool));
}

static void blocks_that_are_still_allocated_do_not_change(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false);
  openreg_block *first = take_in(mempool, 0, 0, 512), *second = take_in(mempool, 0, 0, 512),
                *third = take_in(mempool, 0, 0, 512);
  openreg_block_free(second);
  first->user = &mempool;
  openreg_mempool_checkpoint *checkpoint = checkpoint_of(mempool);
  openreg_block_free(third);
  assert_int_equal(restore(checkpoint), 1);
  assert_ptr_equal(openreg_block_find(first->address), first);
  assert_ptr_equal(first->user, &mempool);
  assert_int_equal(active_blocks_of(mempool), 2);
  first->user = NULL;
  assert_int_equal(restore(checkpoint), 0);
  free_all(mempool);
  free(checkpoint);
  assert_ok(openreg_mempool_release(mempool));
}

static void blocks_are_split_as_they_were_whatever_the_settings(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false);
  openreg_block_free(take_in(mempool, 0, 0, 30 * MIB));
  take_in(mempool, 0, 0, 21 * MIB);
  take_in(mempool, 0, 0, 6 * MIB);
  openreg_mempool_checkpoint *checkpoint = checkpoint_of(mempool);
  struct pool_state before = pool_state_of(mempool);
  free_all(mempool);
  openreg_memory_settings settings = default_settings();
  settings.max_split_bytes = 20 * MIB;
  set_settings(settings);
  assert_int_equal(restore(checkpoint), 2);
  struct pool_state after = pool_state_of(mempool);
  assert_memory_equal(&before, &after, sizeof before);
  free_all(mempool);
  free(checkpoint);
  assert_ok(openreg_mempool_release(mempool));
}

static openreg_status wait_until_open(void *open) {
  while (!atomic_load((atomic_int *)open))
    ;
  return OPENREG_OK;
}

static openreg_status open_gate(void *open) {
  atomic_store((atomic_int *)open, 1);
  return OPENREG_OK;
}

static void restoring_waits_for_streams(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false);
  openreg_block *block = take_in(mempool, 0, 0, 512);
  openreg_mempool_checkpoint *checkpoint = checkpoint_of(mempool);
  atomic_int open = 0;
  assert_ok(openreg_stream_launch(0, 5, &wait_until_open, &open));
  assert_ok(openreg_block_record_stream(block, 5));
  openreg_block_free(block);
  assert_int_equal(active_blocks_of(mempool), 1);
  assert_ok(openreg_stream_launch(0, 6, &open_gate, &open));
  assert_int_equal(restore(checkpoint), 1);
  assert_int_equal(atomic_load(&open), 1);
  free_all(mempool);
  free(checkpoint);
  assert_ok(openreg_mempool_release(mempool));
}

static void a_pool_that_cannot_be_restored_is_an_error(void **state) {
  (void)state;
  openreg_block **blocks = NULL;
  size_t count = 0;
  uint64_t mempool = make_mempool(false);
  openreg_block *block = take_in(mempool, 0, 0, 512);
  openreg_mempool_checkpoint *checkpoint = checkpoint_of(mempool);
  openreg_block *more = take_in(mempool, 0, 0, 512);
  assert_status(openreg_mempool_restore(checkpoint, &blocks, &count), OPENREG_NOT_PERMITTED);
  assert_error("a block is allocated that was not allocated in the checkpoint");
  openreg_block_free(more);
  openreg_block_free(block);
  more = take_in(mempool, 0, 0, 1024);
  assert_status(openreg_mempool_restore(checkpoint, &blocks, &count), OPENREG_NOT_PERMITTED);
  assert_error("a block is allocated that was not allocated in the checkpoint");
  openreg_block_free(more);
  more = take_in(mempool, 0, 1, 512); /* in a segment that the checkpoint does not have */
  assert_status(openreg_mempool_restore(checkpoint, &blocks, &count), OPENREG_NOT_PERMITTED);
  assert_error("a block is allocated that was not allocated in the checkpoint");
  openreg_block_free(more);
  assert_ok(openreg_mempool_release(mempool));
  assert_status(openreg_mempool_restore(checkpoint, &blocks, &count), OPENREG_INVALID_ARGUMENT);
  assert_ok(openreg_mempool_empty(mempool));
  assert_ok(openreg_mempool_retain(mempool));
  assert_status(openreg_mempool_restore(checkpoint, &blocks, &count), OPENREG_NOT_PERMITTED);
  assert_error("memory of its segments was released since");
  assert_null(blocks);
  free(checkpoint);
  assert_ok(openreg_mempool_release(mempool));
}

static void a_pool_without_memory_has_an_empty_checkpoint(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false);
  openreg_mempool_checkpoint *checkpoint = checkpoint_of(mempool);
  assert_int_equal(restore(checkpoint), 0);
  assert_int_equal(free_all(mempool), 0);
  free(checkpoint);
  assert_ok(openreg_mempool_release(mempool));
}

static void bad_arguments_are_refused(void **state) {
  (void)state;
  openreg_block **blocks = NULL;
  size_t count = 0;
  openreg_mempool_checkpoint *checkpoint = NULL;
  uint64_t mempool = make_mempool(false);
  assert_status(openreg_mempool_blocks(0, 0, &blocks, &count), OPENREG_INVALID_ARGUMENT);
  assert_error("memory pool 0 cannot be saved");
  assert_status(openreg_mempool_blocks(0, mempool, NULL, &count), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_mempool_blocks(0, mempool, &blocks, NULL), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_mempool_blocks(0, mempool + 1, &blocks, &count), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_mempool_blocks(TEST_DEVICES, mempool, &blocks, &count),
                OPENREG_INVALID_DEVICE);
  assert_status(openreg_mempool_take_checkpoint(0, 0, &checkpoint), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_mempool_take_checkpoint(0, mempool, NULL), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_mempool_restore(NULL, &blocks, &count), OPENREG_INVALID_ARGUMENT);
  checkpoint = checkpoint_of(mempool);
  assert_status(openreg_mempool_restore(checkpoint, NULL, &count), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_mempool_restore(checkpoint, &blocks, NULL), OPENREG_INVALID_ARGUMENT);
  free(checkpoint);
  assert_ok(openreg_mempool_release(mempool));
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(blocks_are_restored_at_their_addresses),
      ON_EMPTY_DEVICES(blocks_of_expandable_segments_are_restored_at_their_addresses),
      ON_EMPTY_DEVICES(the_statistics_are_those_of_allocating_and_freeing),
      ON_EMPTY_DEVICES(segments_reserved_since_the_checkpoint_stay_free),
      ON_EMPTY_DEVICES(blocks_that_are_still_allocated_do_not_change),
      ON_EMPTY_DEVICES(blocks_are_split_as_they_were_whatever_the_settings),
      ON_EMPTY_DEVICES(restoring_waits_for_streams),
      ON_EMPTY_DEVICES(a_pool_that_cannot_be_restored_is_an_error),
      ON_EMPTY_DEVICES(a_pool_without_memory_has_an_empty_checkpoint),
      ON_EMPTY_DEVICES(bad_arguments_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
