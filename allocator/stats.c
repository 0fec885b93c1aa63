/* stats.c: the statistics, kept under CUDA's names by CUDA's rules.
 *
 * An operation moves a statistic once, by its net change, for its kind of pool. What all pools have
 * together is added up when it is looked at; only its peak is kept all the time, for the peaks of
 * the kinds need not have been at one time. A freed block leaves the allocated ones at once, but
 * the active and requested ones only when no stream uses it any more.
 */
#include "internal.h"

#include <string.h>

static void increase(openreg_stat stats[OPENREG_POOL_KINDS], int kind, int64_t amount) {
  stat_increase(&stats[kind], amount);
  openreg_stat *all = &stats[OPENREG_POOL_ALL];
  int64_t sum = stats[OPENREG_POOL_SMALL].current + stats[OPENREG_POOL_LARGE].current;
  if (sum > all->peak)
    all->peak = sum;
}

static void decrease(openreg_stat stats[OPENREG_POOL_KINDS], int kind, int64_t amount) {
  stat_decrease(&stats[kind], amount);
}

static void add_up(openreg_stat stats[OPENREG_POOL_KINDS]) {
  const openreg_stat *small = &stats[OPENREG_POOL_SMALL], *large = &stats[OPENREG_POOL_LARGE];
  openreg_stat *all = &stats[OPENREG_POOL_ALL];
  all->current = small->current + large->current;
  all->allocated = small->allocated + large->allocated;
  all->freed = small->freed + large->freed;
}

void stats_add_up(struct allocator *allocator) {
#define X(name) add_up(allocator->stats.name);
  OPENREG_MEMORY_STAT_LIST(X)
#undef X
}

void stats_block_allocated(struct allocator *allocator, const struct block *block) {
  openreg_memory_stats *stats = &allocator->stats;
  int kind = block->pool->kind;
  increase(stats->allocation, kind, 1);
  increase(stats->allocated_bytes, kind, (int64_t)block->shown.bytes);
  increase(stats->active, kind, 1);
  increase(stats->active_bytes, kind, (int64_t)block->shown.bytes);
  increase(stats->requested_bytes, kind, (int64_t)block->shown.requested_bytes);
}

void stats_block_freed(struct allocator *allocator, const struct block *block) {
  openreg_memory_stats *stats = &allocator->stats;
  int kind = block->pool->kind;
  decrease(stats->allocation, kind, 1);
  decrease(stats->allocated_bytes, kind, (int64_t)block->shown.bytes);
}

void stats_block_inactive(struct allocator *allocator, const struct block *block) {
  openreg_memory_stats *stats = &allocator->stats;
  int kind = block->pool->kind;
  decrease(stats->active, kind, 1);
  decrease(stats->active_bytes, kind, (int64_t)block->shown.bytes);
  decrease(stats->requested_bytes, kind, (int64_t)block->shown.requested_bytes);
}

static void follow(openreg_stat stats[OPENREG_POOL_KINDS], int kind, int64_t value) {
  int64_t change = value - stats[kind].current;
  if (change > 0)
    increase(stats, kind, change);
  else if (change < 0)
    decrease(stats, kind, -change);
}

void stats_settle_segments(struct allocator *allocator, int kind) {
  openreg_memory_stats *stats = &allocator->stats;
  const struct holding *holding = &allocator->holding[kind];
  follow(stats->segment, kind, holding->segments);
  follow(stats->reserved_bytes, kind, holding->reserved_bytes);
}

void stats_settle_splits(struct allocator *allocator, int kind) {
  openreg_memory_stats *stats = &allocator->stats;
  const struct holding *holding = &allocator->holding[kind];
  follow(stats->inactive_split, kind, holding->splits.pieces);
  follow(stats->inactive_split_bytes, kind, holding->splits.bytes);
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
  lock_take(&allocator->lock);
  stats_add_up(allocator);
  *stats = allocator->stats;
  lock_give(&allocator->lock);
  return OPENREG_OK;
}

/* Calls `change` on every statistic of the device. */
static openreg_status each_stat(int device, void (*change)(openreg_stat *stat), bool counters) {
  struct allocator *allocator;
  openreg_status status = allocator_peek(device, &allocator);
  if (status != OPENREG_OK || !allocator)
    return status;
  lock_take(&allocator->lock);
  stats_add_up(allocator);
  openreg_memory_stats *stats = &allocator->stats;
  for (int kind = 0; kind < OPENREG_POOL_KINDS; kind++) {
#define X(name) change(&stats->name[kind]);
    OPENREG_MEMORY_STAT_LIST(X)
#undef X
  }
  if (counters)
    stats->alloc_retries = stats->ooms = stats->device_allocs = stats->device_frees = 0;
  lock_give(&allocator->lock);
  return OPENREG_OK;
}

openreg_status openreg_memory_reset_peak(int device) {
  return each_stat(device, stat_reset_peak, false);
}

openreg_status openreg_memory_reset_accumulated(int device) {
  return each_stat(device, stat_reset_accumulated, true);
}
