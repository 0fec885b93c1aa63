/* stats.h: what operations tell the statistics, inlined. What they are made of is told in stats.c.
 */
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

static inline void stat_decrease(openreg_stat *stat, int64_t amount) {
  assert(stat->current >= amount);
  stat->current -= amount;
  stat->freed += amount;
}

static inline void stat_reset_peak(openreg_stat *stat) {
  stat->peak = stat->current;
}

static inline void stat_reset_accumulated(openreg_stat *stat) {
  stat->allocated = stat->freed = 0;
}

/* What the program has now; the free memory that is split. For all kinds together, too. */
struct usage openreg_stats_live(const struct allocator *allocator, int kind);
struct splits openreg_stats_splits(const struct allocator *allocator, int kind);
/* Raise the peaks that are below what there is. */
void openreg_stats_raise_peaks(struct allocator *allocator);
void openreg_stats_raise_split_peaks(struct allocator *allocator);

static inline struct usage usage_of(const struct block *block) {
  return (struct usage){1, (int64_t)block->shown.bytes, (int64_t)block->shown.requested_bytes};
}

static inline void usage_add(struct usage *to, struct usage usage) {
  to->blocks += usage.blocks;
  to->bytes += usage.bytes;
  to->requested_bytes += usage.requested_bytes;
}

/* Gives the sign of the least of what remains. */
static inline int64_t usage_subtract(struct usage *from, struct usage usage) {
  int64_t least = from->blocks -= usage.blocks;
  least |= from->bytes -= usage.bytes;
  return least | (from->requested_bytes -= usage.requested_bytes);
}

/* A block became the program's. While none is deferred, what is active is what is allocated, and
 * the peaks of that are no lower: so those of `room` are all that can be passed. */
static inline void stats_block_allocated(struct allocator *allocator, struct tally *tally,
                                         struct usage usage) {
  usage_add(&tally->given, usage);
  int64_t least = usage_subtract(&tally->room.live, usage);
  least |= usage_subtract(&allocator->tallies[OPENREG_POOL_ALL].room.live, usage);
  if (__builtin_expect(least < 0, 0))
    openreg_stats_raise_peaks(allocator);
}

/* An allocated block was freed and allocated again, so many times; what freeing it changed. */
static inline void stats_block_again(const struct block *block, int64_t times,
                                     struct splits change) {
  struct tally *tally = block->pool->tally;
  const struct usage usage = usage_of(block);
  usage_add(&tally->given, (struct usage){times * usage.blocks, times * usage.bytes,
                                          times * usage.requested_bytes});
  /* What freeing lowers, allocating raises. */
  tally->risen.pieces += times * llabs(change.pieces);
  tally->risen.bytes += times * llabs(change.bytes);
}

/* A block is the program's no longer; waits for streams; waits no longer. */
static inline void stats_block_freed(struct allocator *allocator, const struct block *block) {
  const struct usage usage = usage_of(block);
  usage_add(&block->pool->tally->room.live, usage);
  usage_add(&allocator->tallies[OPENREG_POOL_ALL].room.live, usage);
}
static inline void stats_block_deferred(const struct block *block) {
  usage_add(&block->pool->tally->waiting, usage_of(block));
}
static inline void stats_block_waited(const struct block *block) {
  usage_subtract(&block->pool->tally->waiting, usage_of(block));
}

/* Brings the statistics that follow a holding up to date. */
void openreg_stats_settle_segments(struct allocator *allocator, int kind);

static inline int64_t at_least_0(int64_t value) {
  return value > 0 ? value : 0;
}

/* An operation changed the free memory's figures, all in all. */
static inline void stats_splits_changed(struct allocator *allocator, struct tally *tally,
                                        struct splits change) {
  struct splits *room = &tally->room.splits;
  struct splits *room_of_all = &allocator->tallies[OPENREG_POOL_ALL].room.splits;
  int64_t least = room->pieces -= change.pieces;
  least |= room->bytes -= change.bytes;
  least |= room_of_all->pieces -= change.pieces;
  least |= room_of_all->bytes -= change.bytes;
  if (change.pieces <= 0 && change.bytes <= 0)
    return;
  tally->risen.pieces += at_least_0(change.pieces);
  tally->risen.bytes += at_least_0(change.bytes);
  if (__builtin_expect(least < 0, 0))
    openreg_stats_raise_split_peaks(allocator);
}

/* Brings `stats` up to date. */
void openreg_stats_add_up(struct allocator *allocator);

#pragma GCC visibility pop
#endif
