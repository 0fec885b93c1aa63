/* checkpoint.c: saves which blocks of a memory pool are allocated, and restores that state.
 *
 * The replay of a graph uses memory of its pool without allocating it. Whoever captures another
 * graph after the replay must find the pool as the first capture left it. Otherwise the second
 * capture could get memory in which results of the replay lie. As on CUDA, restoring allocates
 * every block of the checkpoint at its place, and then frees those that were free. So the
 * statistics are CUDA's, with one exception: CUDA also frees and reallocates blocks that have not
 * changed.
 */
#include "allocator/internal.h"

#include <inttypes.h>

struct piece {
  char *address;
  size_t bytes;
  enum block_state state; /* FREE, UNMAPPED, or ALLOCATED for any active block */
};

/* The blocks of all segments of the pool, in order. The pieces of one segment cover it. */
struct openreg_mempool_checkpoint {
  int device;
  uint64_t mempool;
  size_t count;
  struct piece pieces[];
};

static bool is_of(const struct segment *segment, uint64_t mempool) {
  return pool_mempool(segment->pool) == mempool && !block_is_uncached(segment->first);
}

/* Iterates over the blocks of a pool. Pass NULL for the first; returns NULL after the last. */
static struct block *next_block(const struct allocator *allocator, uint64_t mempool,
                                const struct block *block) {
  if (block && block->next)
    return block->next;
  struct segment *segment = segment_next(allocator, block ? block->segment : NULL);
  while (segment && !is_of(segment, mempool))
    segment = segment_next(allocator, segment);
  return segment ? segment->first : NULL;
}

static size_t count_blocks(const struct allocator *allocator, uint64_t mempool) {
  size_t count = 0;
  for (struct block *block = NULL; (block = next_block(allocator, mempool, block));)
    count++;
  return count;
}

/* Allocates an array with one element for each block of the pool, after `header_bytes`. Releases
 * the lock meanwhile, and holds it on return. NULL if the host has no memory. */
static void *allocate_array(struct allocator *allocator, uint64_t mempool, size_t header_bytes,
                            size_t element_bytes) {
  for (;;) {
    size_t count = count_blocks(allocator, mempool);
    allocator_unlock(allocator);
    void *room = malloc(header_bytes + (count + 1) * element_bytes);
    allocator_lock(allocator);
    if (!room || count_blocks(allocator, mempool) <= count)
      return room;
    free(room);
  }
}

static openreg_status open_pool(int device, uint64_t mempool, const void *result,
                                struct allocator **allocator) {
  openreg_status status = openreg_allocator_open(device, allocator);
  if (status == OPENREG_OK)
    status = openreg_mempool_require(mempool);
  if (status == OPENREG_OK && (mempool == 0 || !result))
    status = openreg_fail(OPENREG_INVALID_ARGUMENT,
                          result ? "openreg: memory pool 0 cannot be saved or restored: expected a "
                                   "pool that was created"
                                 : "openreg: the result for a memory pool's blocks is NULL");
  return status;
}

static openreg_status fail_without_memory(uint64_t mempool) {
  return openreg_fail(
      OPENREG_OUT_OF_MEMORY,
      "openreg: out of host memory for a list of the blocks of memory pool %" PRIu64, mempool);
}

/* ---- saving ---------------------------------------------------------------------------------- */

openreg_status openreg_mempool_blocks(int device, uint64_t mempool, openreg_block ***blocks,
                                      size_t *count) {
  struct allocator *allocator;
  openreg_status status = open_pool(device, mempool, count ? (void *)blocks : NULL, &allocator);
  if (status != OPENREG_OK)
    return status;
  *count = 0;
  allocator_lock(allocator);
  openreg_block **list = allocate_array(allocator, mempool, 0, sizeof *list);
  for (struct block *block = NULL; list && (block = next_block(allocator, mempool, block));)
    if (block->state == BLOCK_ALLOCATED)
      list[(*count)++] = &block->base;
  allocator_unlock(allocator);
  if (!list)
    return fail_without_memory(mempool);
  *blocks = list;
  return OPENREG_OK;
}

openreg_status openreg_mempool_take_checkpoint(int device, uint64_t mempool,
                                               openreg_mempool_checkpoint **checkpoint) {
  struct allocator *allocator;
  openreg_status status = open_pool(device, mempool, checkpoint, &allocator);
  if (status != OPENREG_OK)
    return status;
  allocator_lock(allocator);
  openreg_mempool_checkpoint *made =
      allocate_array(allocator, mempool, sizeof *made, sizeof made->pieces[0]);
  if (made) {
    *made = (openreg_mempool_checkpoint){.device = device, .mempool = mempool};
    for (struct block *block = NULL; (block = next_block(allocator, mempool, block));)
      made->pieces[made->count++] =
          (struct piece){.address = block_address(block),
                         .bytes = block->base.bytes,
                         .state = block_is_active(block) ? BLOCK_ALLOCATED : block->state};
  }
  allocator_unlock(allocator);
  if (!made)
    return fail_without_memory(mempool);
  *checkpoint = made;
  return OPENREG_OK;
}

/* ---- restoring ------------------------------------------------------------------------------- */

/* Returns the block of the pool that contains an address, or NULL. Starts the search at `from`;
 * NULL starts at the first block. */
static struct block *block_containing(const struct allocator *allocator, uint64_t mempool,
                                      struct block *from, const char *address) {
  struct block *block = from ? from : next_block(allocator, mempool, NULL);
  while (block && (address < block_address(block) || block_end(block) <= address))
    block = next_block(allocator, mempool, block);
  return block;
}

static size_t count_in_state(const struct allocator *allocator, uint64_t mempool,
                             enum block_state state) {
  size_t count = 0;
  for (struct block *block = NULL; (block = next_block(allocator, mempool, block));)
    count += block->state == state;
  return count;
}

static bool is_unchanged(const struct block *block, const struct piece *piece) {
  return piece->state == BLOCK_ALLOCATED && block->state == BLOCK_ALLOCATED &&
         block_address(block) == piece->address && block->base.bytes == piece->bytes;
}

static bool has_room(const struct block *block, const struct piece *piece) {
  return block->state == BLOCK_FREE && piece->address + piece->bytes <= block_end(block);
}

static openreg_status refuse(const openreg_mempool_checkpoint *checkpoint, const char *why) {
  return openreg_fail(OPENREG_NOT_PERMITTED,
                      "openreg: memory pool %" PRIu64 " on device %d cannot be restored: %s",
                      checkpoint->mempool, checkpoint->device, why);
}

/* Checks that each piece is still there or has room, and ensures the records for all of them. */
static openreg_status require_restorable(struct allocator *allocator,
                                         const openreg_mempool_checkpoint *checkpoint) {
  const uint64_t mempool = checkpoint->mempool;
  /* Streams must have finished with freed blocks, because the memory is reallocated at once. */
  openreg_status status = OPENREG_OK;
  if (count_in_state(allocator, mempool, BLOCK_AWAITING_STREAMS) > 0)
    status = openreg_events_synchronize(allocator, &mempool);
  if (status != OPENREG_OK)
    return status;
  struct block *block = NULL;
  size_t kept = 0;
  for (size_t i = 0; i < checkpoint->count; i++) {
    const struct piece *piece = &checkpoint->pieces[i];
    if (piece->state == BLOCK_UNMAPPED)
      continue;
    block = block_containing(allocator, mempool, block, piece->address);
    if (!block || block->state == BLOCK_UNMAPPED)
      return refuse(checkpoint, "memory of its segments was released since");
    if (is_unchanged(block, piece))
      kept++;
    else if (!has_room(block, piece))
      return refuse(checkpoint, "a block is allocated that was not allocated in the checkpoint");
  }
  if (kept != count_in_state(allocator, mempool, BLOCK_ALLOCATED))
    return refuse(checkpoint, "a block is allocated that was not allocated in the checkpoint");
  return slab_ensure(&allocator->blocks, 2 * checkpoint->count) ? OPENREG_OK : OPENREG_SYSTEM;
}

/* Allocates a piece of a free block. The part before it stays free; only expandable segments have
 * more of that than the checkpoint. */
static struct block *restore_block(struct allocator *allocator, struct block *block,
                                   const struct piece *piece) {
  pool_remove(block);
  if (block_address(block) < piece->address) {
    size_t before = (size_t)(piece->address - block_address(block));
    struct block *rest = openreg_block_cut(allocator, block, before);
    pool_insert(block);
    block = rest;
  }
  struct request request = {.bytes = piece->bytes,
                            .rounded_bytes = piece->bytes,
                            .mempool = pool_mempool(block->pool),
                            .pool = block->pool,
                            .stream = block->base.stream,
                            .is_expandable = block_is_expandable(block),
                            .is_exact = true};
  return block_of(openreg_block_mark_allocated(allocator, block, &request));
}

/* `made` must have room for one block of each piece. Returns how many blocks were restored; these
 * are at its front. */
static size_t restore_blocks(struct allocator *allocator,
                             const openreg_mempool_checkpoint *checkpoint, openreg_block **made) {
  struct block *block = NULL;
  for (size_t i = 0; i < checkpoint->count; i++) {
    const struct piece *piece = &checkpoint->pieces[i];
    made[i] = NULL;
    if (piece->state == BLOCK_UNMAPPED)
      continue;
    block = block_containing(allocator, checkpoint->mempool, block, piece->address);
    if (is_unchanged(block, piece))
      continue;
    block = restore_block(allocator, block, piece);
    made[i] = &block->base;
  }
  size_t count = 0;
  for (size_t i = 0; i < checkpoint->count; i++) {
    if (!made[i])
      continue;
    if (checkpoint->pieces[i].state == BLOCK_ALLOCATED) {
      made[count++] = made[i];
      continue;
    }
    __atomic_store_n(address_map_slot(allocator, made[i]->address), NULL, __ATOMIC_RELAXED);
    openreg_allocator_return_block(allocator, block_of(made[i]));
  }
  return count;
}

openreg_status openreg_mempool_restore(const openreg_mempool_checkpoint *checkpoint,
                                       openreg_block ***blocks, size_t *count) {
  if (!checkpoint || !blocks || !count)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_mempool_restore: %s is NULL",
                        checkpoint ? "a result" : "checkpoint");
  struct allocator *allocator;
  openreg_status status = open_pool(checkpoint->device, checkpoint->mempool, blocks, &allocator);
  if (status != OPENREG_OK)
    return status;
  openreg_block **made = malloc((checkpoint->count + 1) * sizeof *made);
  if (!made)
    return fail_without_memory(checkpoint->mempool);
  allocator_lock(allocator);
  status = require_restorable(allocator, checkpoint);
  if (status == OPENREG_OK)
    *count = restore_blocks(allocator, checkpoint, made);
  allocator_unlock(allocator);
  if (status != OPENREG_OK)
    free(made);
  else
    *blocks = made;
  return status;
}
