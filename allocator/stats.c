/* stats.c: the statistics, kept under CUDA's names by CUDA's rules.
 *
 * An operation moves a statistic once, by its net change, for its kind of pool. Most statistics say
 * the same few facts in several ways, so an operation only keeps these facts (struct tally), and
 * the rest is made of them when somebody looks. What there is now is kept as the room that is left
 * below its peak: then one subtraction both counts and tells by its sign that a peak is passed. It
 * is kept for all kinds together, too, since the peaks of the kinds need not have been at one time.
 * A freed block leaves the allocated ones at once, but the active and requested ones only when no
 * stream uses it any more: until then it is waiting.
 *
 *     allocated == live,  active == live + waiting,  all that was freed == given - live
 */
#include "allocator/stats.h"

#include <string.h>

/* ---- what holdings are followed by ----------------------------------------------------------- */

static void follow(openreg_stat stats[OPENREG_POOL_KINDS], int kind, int64_t value) {
  int64_t change = value - stats[kind].current;
  if (change > 0)
    stat_increase(&stats[kind], change);
  else if (change < 0)
    stat_decrease(&stats[kind], -change);
  int64_t sum = stats[OPENREG_POOL_SMALL].current + stats[OPENREG_POOL_LARGE].current;
  if (sum > stats[OPENREG_POOL_ALL].peak)
    stats[OPENREG_POOL_ALL].peak = sum;
}

void openreg_stats_settle_segments(struct allocator *allocator, int kind) {
  openreg_memory_stats *stats = &allocator->stats;
  const struct holding *holding = &allocator->holding[kind];
  follow(stats->segment, kind, holding->segments);
  follow(stats->reserved_bytes, kind, holding->reserved_bytes);
}

/* ---- what tallies are made into -------------------------------------------------------------- */

struct usage openreg_stats_live(const struct allocator *allocator, int kind) {
  const openreg_memory_stats *stats = &allocator->stats;
  const struct usage *room = &allocator->tallies[kind].room.live;
  return (struct usage){stats->allocation[kind].peak - room->blocks,
                        stats->allocated_bytes[kind].peak - room->bytes,
                        stats->requested_bytes[kind].peak - room->requested_bytes};
}

struct splits openreg_stats_splits(const struct allocator *allocator, int kind) {
  const openreg_memory_stats *stats = &allocator->stats;
  const struct splits *room = &allocator->tallies[kind].room.splits;
  return (struct splits){stats->inactive_split[kind].peak - room->pieces,
                         stats->inactive_split_bytes[kind].peak - room->bytes};
}

static void set(openreg_stat *stat, int64_t current, int64_t allocated, int64_t freed) {
  stat->current = current;
  stat->allocated = allocated;
  stat->freed = freed;
}

/* Of the statistics that speak of blocks in use. */
static void set_usage(struct allocator *allocator, int kind) {
  openreg_memory_stats *stats = &allocator->stats;
  const struct tally *tally = &allocator->tallies[kind];
  const struct usage live = openreg_stats_live(allocator, kind);
#define MAKE(name, field)                                                                          \
  set(&stats->name[kind], live.field, tally->given.field - tally->given_before.field,              \
      tally->given.field - live.field - tally->returned_before.field)
  MAKE(allocation, blocks);
  MAKE(allocated_bytes, bytes);
#undef MAKE
#define MAKE(name, field)                                                                          \
  set(&stats->name[kind], live.field + tally->waiting.field,                                       \
      tally->given.field - tally->given_before.field,                                              \
      tally->given.field - live.field - tally->waiting.field - tally->unused_before.field)
  MAKE(active, blocks);
  MAKE(active_bytes, bytes);
  MAKE(requested_bytes, requested_bytes);
#undef MAKE
}

static void set_splits(struct allocator *allocator, int kind) {
  openreg_memory_stats *stats = &allocator->stats;
  const struct tally *tally = &allocator->tallies[kind];
  const struct splits splits = openreg_stats_splits(allocator, kind);
#define MAKE(name, field)                                                                          \
  set(&stats->name[kind], splits.field, tally->risen.field,                                        \
      tally->splits_before.field + tally->risen.field - splits.field)
  MAKE(inactive_split, pieces);
  MAKE(inactive_split_bytes, bytes);
#undef MAKE
}

static void add_up(openreg_stat stats[OPENREG_POOL_KINDS]) {
  const openreg_stat *small = &stats[OPENREG_POOL_SMALL], *large = &stats[OPENREG_POOL_LARGE];
  set(&stats[OPENREG_POOL_ALL], small->current + large->current,
      small->allocated + large->allocated, small->freed + large->freed);
}

void openreg_stats_add_up(struct allocator *allocator) {
  for (int kind = OPENREG_POOL_SMALL; kind <= OPENREG_POOL_LARGE; kind++) {
    set_usage(allocator, kind);
    set_splits(allocator, kind);
  }
#define X(name) add_up(allocator->stats.name);
  OPENREG_MEMORY_STAT_LIST(X)
#undef X
}

/* ---- peaks ----------------------------------------------------------------------------------- */

/* What there is of all that has room, in the form of that; it goes with the peaks, which is why it
 * is read before they move and put back after. */
static void read_rooms(const struct allocator *allocator, struct headroom now[OPENREG_POOL_KINDS]) {
  for (int kind = 0; kind < OPENREG_POOL_KINDS; kind++)
    now[kind] = (struct headroom){openreg_stats_live(allocator, kind),
                                  openreg_stats_splits(allocator, kind)};
}

static void put_rooms(struct allocator *allocator, const struct headroom now[OPENREG_POOL_KINDS]) {
  const openreg_memory_stats *stats = &allocator->stats;
  for (int kind = 0; kind < OPENREG_POOL_KINDS; kind++) {
    const struct usage *live = &now[kind].live;
    const struct splits *splits = &now[kind].splits;
    allocator->tallies[kind].room =
        (struct headroom){{stats->allocation[kind].peak - live->blocks,
                           stats->allocated_bytes[kind].peak - live->bytes,
                           stats->requested_bytes[kind].peak - live->requested_bytes},
                          {stats->inactive_split[kind].peak - splits->pieces,
                           stats->inactive_split_bytes[kind].peak - splits->bytes}};
  }
}

static void raise(openreg_stat stats[OPENREG_POOL_KINDS]) {
  add_up(stats);
  for (int kind = 0; kind < OPENREG_POOL_KINDS; kind++)
    if (stats[kind].current > stats[kind].peak)
      stats[kind].peak = stats[kind].current;
}

void openreg_stats_raise_peaks(struct allocator *allocator) {
  openreg_memory_stats *stats = &allocator->stats;
  struct headroom now[OPENREG_POOL_KINDS];
  read_rooms(allocator, now);
  for (int kind = OPENREG_POOL_SMALL; kind <= OPENREG_POOL_LARGE; kind++)
    set_usage(allocator, kind);
  raise(stats->allocation);
  raise(stats->allocated_bytes);
  raise(stats->active);
  raise(stats->active_bytes);
  raise(stats->requested_bytes);
  put_rooms(allocator, now);
}

void openreg_stats_raise_split_peaks(struct allocator *allocator) {
  openreg_memory_stats *stats = &allocator->stats;
  struct headroom now[OPENREG_POOL_KINDS];
  read_rooms(allocator, now);
  for (int kind = OPENREG_POOL_SMALL; kind <= OPENREG_POOL_LARGE; kind++)
    set_splits(allocator, kind);
  raise(stats->inactive_split);
  raise(stats->inactive_split_bytes);
  put_rooms(allocator, now);
}

/* ---- public ---------------------------------------------------------------------------------- */

openreg_status openreg_memory_get_stats(int device, openreg_memory_stats *stats) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_peek(device, &allocator);
  if (status != OPENREG_OK)
    return status;
  if (!stats)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_memory_get_stats: stats is NULL");
  memset(stats, 0, sizeof *stats);
  if (!allocator)
    return OPENREG_OK;
  allocator_lock(allocator);
  openreg_stats_add_up(allocator);
  *stats = allocator->stats;
  allocator_unlock(allocator);
  return OPENREG_OK;
}

/* Calls `change` on every statistic. */
static void each_stat(openreg_memory_stats *stats, void (*change)(openreg_stat *stat)) {
  for (int kind = 0; kind < OPENREG_POOL_KINDS; kind++) {
#define X(name) change(&stats->name[kind]);
    OPENREG_MEMORY_STAT_LIST(X)
#undef X
  }
}

openreg_status openreg_memory_reset_peak(int device) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_peek(device, &allocator);
  if (status != OPENREG_OK || !allocator)
    return status;
  allocator_lock(allocator);
  struct headroom now[OPENREG_POOL_KINDS];
  read_rooms(allocator, now);
  openreg_stats_add_up(allocator);
  each_stat(&allocator->stats, stat_reset_peak);
  put_rooms(allocator, now);
  openreg_mempool_accounts_each(allocator, stat_reset_peak);
  allocator_unlock(allocator);
  return OPENREG_OK;
}

static struct usage usage_less(struct usage from, const struct usage *usage) {
  from.blocks -= usage->blocks;
  from.bytes -= usage->bytes;
  from.requested_bytes -= usage->requested_bytes;
  return from;
}

static void tally_reset_accumulated(struct allocator *allocator, int kind) {
  struct tally *tally = &allocator->tallies[kind];
  const struct usage live = openreg_stats_live(allocator, kind);
  tally->given_before = tally->given;
  tally->returned_before = usage_less(tally->given, &live);
  tally->unused_before = usage_less(tally->returned_before, &tally->waiting);
  tally->risen = (struct splits){0};
  tally->splits_before = openreg_stats_splits(allocator, kind);
}

openreg_status openreg_memory_reset_accumulated(int device) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_peek(device, &allocator);
  if (status != OPENREG_OK || !allocator)
    return status;
  allocator_lock(allocator);
  openreg_memory_stats *stats = &allocator->stats;
  for (int kind = OPENREG_POOL_SMALL; kind <= OPENREG_POOL_LARGE; kind++)
    tally_reset_accumulated(allocator, kind);
  each_stat(stats, stat_reset_accumulated);
  openreg_mempool_accounts_each(allocator, stat_reset_accumulated);
  stats->alloc_retries = stats->ooms = stats->device_allocs = stats->device_frees = 0;
  stats->stream_syncs = 0;
  allocator_unlock(allocator);
  return OPENREG_OK;
}
