/* deferred.c: blocks that other streams use, and the wait of freed ones for them.
 *
 * A block belongs to the stream that it was allocated for: its own stream's later work comes after
 * its earlier work, so it needs no waiting, with one exception: work that runs inline on another
 * thread allocates while it runs, and what is freed then may be in use by work that is queued
 * behind it. Other streams are recorded on it. When it is freed while one of these has work left,
 * it stays active and is polled by later allocations, until none has. A stream counts as busy as
 * long as it has any work at all, even younger than the free: that delays reuse, never allows it
 * too soon, and a request that would fail otherwise waits for it.
 */
#include "allocator/stats.h"

openreg_status openreg_block_record_stream(openreg_block *shown, int stream) {
  if (openreg_in_bad_fork())
    return openreg_fail(OPENREG_BAD_FORK, "openreg: a block's memory stays with the process that "
                                          "allocated it: it cannot be used after fork");
  if (!shown)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg_block_record_stream: block is NULL: expected an allocated block");
  if (stream < 0 || stream >= OPENREG_STREAMS_PER_DEVICE)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg_block_record_stream: stream %d: expected 0 to %d", stream,
                        OPENREG_STREAMS_PER_DEVICE - 1);
  if (stream == shown->stream || shown->bytes == 0)
    return OPENREG_OK;
  struct block *block = block_of(shown);
  struct allocator *allocator = openreg_allocator_of(block);
  allocator_lock(allocator);
  assert(block->state == BLOCK_ALLOCATED || block->state == BLOCK_IMPORTED);
  block_add_stream(block, stream);
  allocator_unlock(allocator);
  return OPENREG_OK;
}

bool openreg_block_is_busy(struct block *block) {
  bool busy = false;
  for (int word = 0; word < STREAM_WORDS; word++)
    for (uint64_t bits = block->streams[word]; bits; bits &= bits - 1) {
      int stream = word * 64 + __builtin_ctzll(bits);
      if (openreg_stream_query(block->shown.device, stream) == OPENREG_OK)
        block->streams[word] &= ~(bits & -bits);
      else
        busy = true;
    }
  return busy;
}

void openreg_deferred_push(struct allocator *allocator, struct block *block) {
  stats_block_deferred(block);
  block->state = BLOCK_DEFERRED;
  block->waiting = allocator->deferred;
  allocator->deferred = block;
}

void openreg_deferred_poll(struct allocator *allocator) {
  struct block **link = &allocator->deferred;
  while (*link) {
    struct block *block = *link;
    if (openreg_block_is_busy(block)) {
      link = &block->waiting;
    } else {
      *link = block->waiting;
      stats_block_waited(block);
      openreg_pool_free(allocator, block);
    }
  }
}

static void add_streams(uint64_t streams[STREAM_WORDS], const struct block *waiting) {
  for (const struct block *block = waiting; block; block = block->waiting)
    for (int word = 0; word < STREAM_WORDS; word++)
      streams[word] |= block->streams[word];
}

openreg_status openreg_deferred_wait(struct allocator *allocator) {
  uint64_t streams[STREAM_WORDS] = {0};
  openreg_status status = OPENREG_OK;
  add_streams(streams, allocator->deferred);
  add_streams(streams, allocator->awaiting);
  allocator_unlock(allocator);
  for (int stream = 0; status == OPENREG_OK && stream < OPENREG_STREAMS_PER_DEVICE; stream++)
    if (streams[stream / 64] >> stream % 64 & 1)
      status = openreg_stream_drain(allocator->device, stream);
  if (status == OPENREG_OK)
    status = openreg_device_drain(allocator->device);
  allocator_lock(allocator);
  if (status == OPENREG_OK) {
    openreg_shared_poll(allocator);
    openreg_deferred_poll(allocator);
  }
  return status;
}
