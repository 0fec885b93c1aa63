/* mempool_stats.c: what each memory pool has reserved of a device.
 *
 * As on CUDA, every pool that ever allocated there keeps its statistics: `current` falls to 0 when
 * the pool is gone, and the other values stay. They are created before the pool reserves memory, so
 * that counting cannot fail.
 */
#include "allocator/stats.h"

#include <stdlib.h>
#include <string.h>

static openreg_mempool_stats *stats_of_mempool(const struct allocator *allocator,
                                               uint64_t mempool) {
  for (size_t i = allocator->mempool_stats.count; i-- > 0;)
    if (allocator->mempool_stats.list[i].mempool == mempool)
      return &allocator->mempool_stats.list[i];
  return NULL;
}

bool openreg_mempool_ensure_stats(struct allocator *allocator, uint64_t mempool) {
  struct mempool_stats *mempool_stats = &allocator->mempool_stats;
  if (mempool == 0 || stats_of_mempool(allocator, mempool))
    return true;
  if (mempool_stats->count == mempool_stats->room) {
    size_t room = mempool_stats->room ? 2 * mempool_stats->room : 64;
    openreg_mempool_stats *longer = openreg_pages_map(room * sizeof *longer);
    if (!longer)
      return false;
    if (mempool_stats->count > 0)
      memcpy(longer, mempool_stats->list, mempool_stats->count * sizeof *longer);
    mempool_stats->list = longer;
    mempool_stats->room = room;
  }
  mempool_stats->list[mempool_stats->count++] = (openreg_mempool_stats){.mempool = mempool};
  return true;
}

void openreg_mempool_count_reserved(struct allocator *allocator, const struct pool *pool,
                                    int64_t change) {
  if (pool->owner)
    stats_change(stats_of_mempool(allocator, pool_mempool(pool))->reserved_bytes, pool->kind,
                 change);
}

void openreg_mempool_for_each_stats(struct allocator *allocator,
                                    void (*change)(openreg_stat *stat)) {
  for (size_t i = 0; i < allocator->mempool_stats.count; i++)
    for (int kind = 0; kind < OPENREG_POOL_KINDS; kind++)
      change(&allocator->mempool_stats.list[i].reserved_bytes[kind]);
}

/* ---- public ---------------------------------------------------------------------------------- */

openreg_status openreg_mempool_get_stats(int device, openreg_mempool_stats **stats, size_t *count) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_get_existing(device, &allocator);
  if (status != OPENREG_OK)
    return status;
  if (!stats || !count)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg_mempool_get_stats: stats or count is NULL");
  openreg_mempool_stats *copy = NULL;
  size_t copied = 0;
  if (allocator) {
    allocator_lock(allocator);
    copied = allocator->mempool_stats.count;
    copy = copied ? malloc(copied * sizeof *copy) : NULL;
    if (copy)
      memcpy(copy, allocator->mempool_stats.list, copied * sizeof *copy);
    allocator_unlock(allocator);
  }
  if (copied && !copy)
    return openreg_fail(OPENREG_OUT_OF_MEMORY,
                        "openreg: out of host memory for the statistics of %zu memory pools",
                        copied);
  *stats = copy;
  *count = copied;
  return OPENREG_OK;
}
