/* stats.c: the statistics, kept under CUDA's names by CUDA's rules.
 *
 * An operation moves a statistic once, by its net change, for its kind of pool and for all. A freed
 * block leaves the allocated ones at once, but the active and requested ones only when no stream
 * uses it any more.
 */
#include "internal.h"

#include <string.h>

static void stat_increase(openreg_stat *stat, int64_t amount) {
  stat->current += amount;
  stat->allocated += amount;
  if (stat->current > stat->peak)
    stat->peak = stat->current;
}

static void stat_decrease(openreg_stat *stat, int64_t amount) {
  assert(stat->current >= amount);
  stat->current -= amount;
  stat->freed += amount;
}

static void increase(openreg_stat stats[OPENREG_POOL_KINDS], int kind, size_t amount) {
  stat_increase(&stats[OPENREG_POOL_ALL], (int64_t)amount);
  stat_increase(&stats[kind], (int64_t)amount);
}

static void decrease(openreg_stat stats[OPENREG_POOL_KINDS], int kind, size_t amount) {
  stat_decrease(&stats[OPENREG_POOL_ALL], (int64_t)amount);
  stat_decrease(&stats[kind], (int64_t)amount);
}

void stats_block_allocated(struct allocator *allocator, const struct block *block) {
  openreg_memory_stats *stats = &allocator->stats;
  int kind = block->pool->kind;
  increase(stats->allocation, kind, 1);
  increase(stats->allocated_bytes, kind, block->shown.bytes);
  increase(stats->active, kind, 1);
  increase(stats->active_bytes, kind, block->shown.bytes);
  increase(stats->requested_bytes, kind, block->shown.requested_bytes);
}

void stats_block_freed(struct allocator *allocator, const struct block *block) {
  openreg_memory_stats *stats = &allocator->stats;
  int kind = block->pool->kind;
  decrease(stats->allocation, kind, 1);
  decrease(stats->allocated_bytes, kind, block->shown.bytes);
}

void stats_block_inactive(struct allocator *allocator, const struct block *block) {
  openreg_memory_stats *stats = &allocator->stats;
  int kind = block->pool->kind;
  decrease(stats->active, kind, 1);
  decrease(stats->active_bytes, kind, block->shown.bytes);
  decrease(stats->requested_bytes, kind, block->shown.requested_bytes);
}

static void follow(openreg_stat stats[OPENREG_POOL_KINDS], int kind, int64_t value) {
  int64_t change = value - stats[kind].current;
  if (change > 0)
    increase(stats, kind, (size_t)change);
  else if (change < 0)
    decrease(stats, kind, (size_t)-change);
}

void stats_settle(struct allocator *allocator, int kind) {
  openreg_memory_stats *stats = &allocator->stats;
  const struct holding *holding = &allocator->holding[kind];
  follow(stats->segment, kind, holding->segments);
  follow(stats->reserved_bytes, kind, holding->reserved_bytes);
  follow(stats->inactive_split, kind, holding->inactive_splits);
  follow(stats->inactive_split_bytes, kind, holding->inactive_split_bytes);
}

/* ---- public ---------------------------------------------------------------------------------- */

openreg_status openreg_memory_get_stats(int device, openreg_memory_stats *stats) {
  struct allocator *allocator;
  openreg_status status = allocator_peek(device, &allocator);
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

/* Calls `change` on every statistic of the device. */
static openreg_status each_stat(int device, void (*change)(openreg_stat *stat), bool counters) {
  struct allocator *allocator;
  openreg_status status = allocator_peek(device, &allocator);
  if (status != OPENREG_OK || !allocator)
    return status;
  allocator_lock(allocator);
  openreg_memory_stats *stats = &allocator->stats;
  for (int kind = 0; kind < OPENREG_POOL_KINDS; kind++) {
#define X(name) change(&stats->name[kind]);
    OPENREG_MEMORY_STAT_LIST(X)
#undef X
  }
  if (counters)
    stats->alloc_retries = stats->ooms = stats->device_allocs = stats->device_frees = 0;
  allocator_unlock(allocator);
  return OPENREG_OK;
}

static void reset_peak(openreg_stat *stat) {
  stat->peak = stat->current;
}
static void reset_accumulated(openreg_stat *stat) {
  stat->allocated = stat->freed = 0;
}

openreg_status openreg_memory_reset_peak(int device) {
  return each_stat(device, reset_peak, false);
}

openreg_status openreg_memory_reset_accumulated(int device) {
  return each_stat(device, reset_accumulated, true);
}
