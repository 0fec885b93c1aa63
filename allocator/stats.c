/* stats.c: reads and resets the statistics. stats.h has the counting. */
#include "allocator/stats.h"

#include <string.h>

void openreg_stats_for_each(openreg_memory_stats *stats, void (*change)(openreg_stat *stat)) {
  for (int kind = 0; kind < OPENREG_POOL_KINDS; kind++) {
#define X(name) change(&stats->name[kind]);
    OPENREG_MEMORY_STAT_LIST(X)
#undef X
  }
  change(&stats->oversize_allocations);
  change(&stats->oversize_segments);
}

static void repeat(openreg_stat *stat, const openreg_stat *before, const openreg_stat *after,
                   int64_t times) {
  stat->allocated += times * (after->allocated - before->allocated);
  stat->freed += times * (after->freed - before->freed);
}

void openreg_stats_repeat(openreg_memory_stats *stats, const openreg_memory_stats *before,
                          const openreg_memory_stats *after, int64_t times) {
  for (int kind = 0; kind < OPENREG_POOL_KINDS; kind++) {
#define X(name) repeat(&stats->name[kind], &before->name[kind], &after->name[kind], times);
    OPENREG_MEMORY_STAT_LIST(X)
#undef X
  }
  repeat(&stats->oversize_allocations, &before->oversize_allocations, &after->oversize_allocations,
         times);
}

/* ---- public ---------------------------------------------------------------------------------- */

openreg_status openreg_memory_get_stats(int device, openreg_memory_stats *stats) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_get_existing(device, &allocator);
  if (status != OPENREG_OK)
    return status;
  if (!stats)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_memory_get_stats: stats is NULL");
  memset(stats, 0, sizeof *stats);
  if (!allocator)
    return OPENREG_OK;
  allocator_lock(allocator);
  *stats = allocator->stats;
  allocator_unlock(allocator);
  return OPENREG_OK;
}

openreg_status openreg_memory_reset_peak(int device) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_get_existing(device, &allocator);
  if (status != OPENREG_OK || !allocator)
    return status;
  allocator_lock(allocator);
  openreg_stats_for_each(&allocator->stats, stat_reset_peak);
  openreg_mempool_for_each_stats(allocator, stat_reset_peak);
  allocator_unlock(allocator);
  return OPENREG_OK;
}

openreg_status openreg_memory_reset_accumulated(int device) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_get_existing(device, &allocator);
  if (status != OPENREG_OK || !allocator)
    return status;
  allocator_lock(allocator);
  openreg_memory_stats *stats = &allocator->stats;
  openreg_stats_for_each(stats, stat_reset_accumulated);
  openreg_mempool_for_each_stats(allocator, stat_reset_accumulated);
  stats->alloc_retries = stats->ooms = stats->oom_rejections = 0;
  stats->device_allocs = stats->device_frees = stats->stream_syncs = 0;
  allocator_unlock(allocator);
  return OPENREG_OK;
}
