/* expandable.c: segments that grow (expandable_segments:True).
 *
 * Such a segment is a range of addresses for one pool and stream, which is larger than the device's
 * memory. It is mapped in pages: 2 MiB in the small pool, the size of a large segment in the large
 * pool. Addresses without memory are also blocks, with state UNMAPPED, and consist of whole pages.
 *
 *     segment.bytes == whole pages >= capacity + capacity / 8
 *     an UNMAPPED block's address and size are multiples of page_bytes from the segment's start
 *     no two neighbours are UNMAPPED, and no two are FREE
 *
 * So if pages in the middle are released and mapped again, the parts merge again. A mapping takes
 * all the bytes that it needs from the ledger, or none.
 */
#include "allocator/stats.h"

/* ---- mapping --------------------------------------------------------------------------------- */

/* Creates a segment without memory. NULL if no addresses are left. */
static struct block *reserve_addresses(struct allocator *allocator, const struct request *request) {
  size_t page_bytes = request->pool->kind == OPENREG_POOL_SMALL
                          ? SMALL_SEGMENT_BYTES
                          : allocator->settings.large_segment_bytes;
  size_t bytes = round_up(allocator->capacity + allocator->capacity / 8, page_bytes);
  struct segment *segment = openreg_segment_place(allocator, request, bytes);
  if (!segment)
    return NULL;
  segment->page_bytes = page_bytes;
  return segment->first;
}

/* Whether free and unmapped blocks, starting with this one, are large enough together. */
static bool has_room(const struct block *block, size_t bytes) {
  size_t found = 0;
  for (; found < bytes && block && !block_is_active(block); block = block->next)
    found += block->base.bytes;
  return found >= bytes;
}

static bool is_of(const struct segment *segment, const struct request *request) {
  return segment->page_bytes != 0 && segment->pool == request->pool &&
         segment->stream == request->stream;
}

/* Finds the place where mapping would serve a request: the lowest unmapped block, or the free block
 * before it. */
static struct block *find_room(const struct allocator *allocator, const struct request *request) {
  for (struct segment *segment = allocator->lowest; segment; segment = segment->above) {
    if (!is_of(segment, request))
      continue;
    for (struct block *block = segment->first; block; block = block->next) {
      if (block->state != BLOCK_UNMAPPED)
        continue;
      struct block *start = block->prev && block->prev->state == BLOCK_FREE ? block->prev : block;
      if (has_room(start, request->rounded_bytes))
        return start;
    }
  }
  return NULL;
}

/* Maps enough pages for `bytes` at the start of an unmapped block. The block becomes free and
 * merges with its free neighbours. Uses one record. */
static openreg_status map(struct allocator *allocator, struct block *block, size_t bytes) {
  const struct segment *segment = block->segment;
  size_t mapped = round_up(bytes, segment->page_bytes);
  if (!openreg_address_map_cover(allocator, block_address(block), mapped))
    return OPENREG_SYSTEM;
  openreg_status status = openreg_ledger_reserve(allocator->device, mapped);
  if (status != OPENREG_OK)
    return status;
  char *address = block_address(block);
  if (mapped < block->base.bytes)
    openreg_block_cut(allocator, block, mapped)->state = BLOCK_UNMAPPED;
  if (memory_debug_is_on())
    openreg_debug_on_reserve(address, mapped);
  openreg_block_merge(allocator, block, BLOCK_FREE);
  pool_insert(block);
  stats_increase(allocator->stats.reserved_bytes, block->pool->kind, mapped);
  allocator->stats.device_allocs++;
  openreg_mempool_count_reserved(allocator, block->pool, (int64_t)mapped);
  if (memory_is_observed())
    openreg_observe_segment(OPENREG_MEMORY_SEGMENT_MAPPED, allocator, segment, address, mapped);
  return OPENREG_OK;
}

static size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

openreg_status openreg_expandable_reserve(struct allocator *allocator,
                                          const struct request *request, struct block **found) {
  size_t bytes = request->rounded_bytes;
  struct block *block = find_room(allocator, request);
  if (!block)
    block = reserve_addresses(allocator, request);
  if (!block)
    return OPENREG_OUT_OF_MEMORY;
  openreg_status status = OPENREG_OK;
  if (block->state == BLOCK_UNMAPPED)
    status = map(allocator, block, smaller(block->base.bytes, bytes));
  while (status == OPENREG_OK && block->base.bytes < bytes) {
    struct block *next = block->next;
    if (!next || next->state != BLOCK_UNMAPPED)
      return OPENREG_OUT_OF_MEMORY;
    size_t lacking = smaller(bytes - block->base.bytes, next->base.bytes);
    /* One record for the part that stays unmapped, one for the part that will be split off. */
    status = slab_ensure(&allocator->blocks, 2) ? map(allocator, next, lacking) : OPENREG_SYSTEM;
    block = next;
  }
  if (status != OPENREG_OK)
    return status;
  pool_remove(block);
  *found = block;
  return OPENREG_OK;
}

/* ---- unmapping ------------------------------------------------------------------------------- */

/* Turns the parts outside of the pages of a block, which is in no tree, into free blocks. */
static struct block *cut_ends(struct allocator *allocator, struct block *block, char *from,
                              char *to) {
  if (to < block_end(block))
    pool_insert(openreg_block_cut(allocator, block, (size_t)(to - block_address(block))));
  if (from == block_address(block))
    return block;
  struct block *middle = openreg_block_cut(allocator, block, (size_t)(from - block_address(block)));
  pool_insert(block);
  return middle;
}

openreg_status openreg_expandable_unmap(struct allocator *allocator, struct block *block) {
  struct segment *segment = block->segment;
  struct pool *pool = block->pool;
  size_t offset = (size_t)(block_address(block) - segment->address);
  char *from = segment->address + round_up(offset, segment->page_bytes);
  size_t end = offset + block->base.bytes;
  char *to = segment->address + end / segment->page_bytes * segment->page_bytes;
  if (from >= to)
    return OPENREG_OK;
  if (!slab_ensure(&allocator->blocks, 2))
    return OPENREG_SYSTEM;
  size_t bytes = (size_t)(to - from);
  openreg_status status = openreg_segment_give_back(allocator, block, from, bytes);
  if (status != OPENREG_OK)
    return status;
  pool_remove(block);
  block = cut_ends(allocator, block, from, to);
  block->state = BLOCK_UNMAPPED;
  openreg_block_merge(allocator, block, BLOCK_UNMAPPED);
  stats_decrease(allocator->stats.reserved_bytes, pool->kind, bytes);
  allocator->stats.device_frees++;
  openreg_mempool_count_reserved(allocator, pool, -(int64_t)bytes);
  if (memory_is_observed())
    openreg_observe_segment(OPENREG_MEMORY_SEGMENT_UNMAPPED, allocator, segment, from, bytes);
  if (!block_is_split(block))
    openreg_segment_remove(allocator, segment);
  return OPENREG_OK;
}
