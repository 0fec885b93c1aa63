/* stats.h: how statistics are counted. Each exists for the small pools, the large pools, and both
 * together. The peaks of the kinds need not have occurred at the same time. */
#ifndef OPENREG_ALLOCATOR_STATS_H
#define OPENREG_ALLOCATOR_STATS_H

#include "allocator/internal.h"

#pragma GCC visibility push(hidden)

static inline void stat_increase(openreg_stat *stat, int64_t amount) {
  stat->current += amount;
  stat->allocated += amount;
  if (stat->current > stat->peak)
    stat->peak = stat->current;
}

/* As on CUDA, the statistics of oversize blocks can become negative when their limit is changed. */
static inline void stat_decrease(openreg_stat *stat, int64_t amount) {
  stat->current -= amount;
  stat->freed += amount;
}

static inline void stat_reset_peak(openreg_stat *stat) {
  stat->peak = stat->current;
}

static inline void stat_reset_accumulated(openreg_stat *stat) {
  stat->allocated = stat->freed = 0;
}

/* Changes the statistic of one kind of pool and that of all. */
static inline void stats_increase(openreg_stat stats[OPENREG_POOL_KINDS], int kind, size_t amount) {
  stat_increase(&stats[OPENREG_POOL_ALL], (int64_t)amount);
  stat_increase(&stats[kind], (int64_t)amount);
}

static inline void stats_decrease(openreg_stat stats[OPENREG_POOL_KINDS], int kind, size_t amount) {
  assert(stats[kind].current >= (int64_t)amount);
  stat_decrease(&stats[OPENREG_POOL_ALL], (int64_t)amount);
  stat_decrease(&stats[kind], (int64_t)amount);
}

static inline void stats_change(openreg_stat stats[OPENREG_POOL_KINDS], int kind, int64_t change) {
  if (change > 0)
    stats_increase(stats, kind, (size_t)change);
  else if (change < 0)
    stats_decrease(stats, kind, (size_t)-change);
}

/* Calls `change` on every statistic. */
void openreg_stats_for_each(openreg_memory_stats *stats, void (*change)(openreg_stat *stat));
/* Adds what `times` operations accumulate, each of which changes `before` to `after`. */
void openreg_stats_repeat(openreg_memory_stats *stats, const openreg_memory_stats *before,
                          const openreg_memory_stats *after, int64_t times);

#pragma GCC visibility pop
#endif
