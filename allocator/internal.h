/* internal.h: the structures of the caching allocator, shared by its files and by nobody else.
 *
 * An arena is a list of ranges in address order that cover it without a gap. A range is either
 * unreserved or a segment: reserved for one pool and cut into blocks without a gap. A pool holds
 * the free blocks of one stream and one kind of size. What must be true whenever a device's lock is
 * free (openreg_memory_is_valid walks all of it):
 *
 *   lowest.address == base, range.address + range.bytes == range.above.address, the last == end
 *   range.pool != range.above.pool                       (neighbours of one owner are one range)
 *   segment.address == first block's address, block.address + block.bytes == block.next.address
 *   block.state == FREE  =>  block.next.state != FREE    (free neighbours are one block)
 *   block.state == FREE  <=> block is in its pool's free list
 *   block.state == PARKED <=> block.pool.parked == block (free, and merged with its neighbours
 *                                           before anything but its own size is taken or put)
 *   block.streams != 0  =>  block.state is ALLOCATED or DEFERRED
 *   block.state == ALLOCATED and block.bytes > 0  <=>  starts[unit of block.address] == block
 *   every statistic == the sum over the blocks or ranges that it speaks of
 *
 * No function here locks except those of allocator.c, stats.c, deferred.c and check.c that
 * allocator.h names; the others are called with the lock of their device held. Pinned memory has a
 * lock and a pool of its own (pinned.c), and uses slabs, pages and single statistics only.
 */
#ifndef OPENREG_ALLOCATOR_INTERNAL_H
#define OPENREG_ALLOCATOR_INTERNAL_H

#include "allocator.h"
#include "lock.h"

#include <assert.h>

#pragma GCC visibility push(hidden)

enum {
  UNIT_BYTES = 512,        /* CUDA's kMinBlockSize: every block is a multiple */
  SMALL_BYTES = 1 << 20,   /* CUDA's kSmallSize: the largest request of the small pool */
  GRANULE_BYTES = 2 << 20, /* CUDA's kSmallBuffer; the ledger and the pages move in these */
  CLASS_COUNT = SMALL_BYTES / UNIT_BYTES,
  CLASS_WORDS = CLASS_COUNT / 64,
  STREAM_WORDS = (OPENREG_STREAMS_PER_DEVICE + 63) / 64,
};

/* ---- blocks ---------------------------------------------------------------------------------- */

enum block_state {
  BLOCK_RECYCLED, /* a record without memory, in its slab */
  BLOCK_EDGE,     /* the end of a segment's ring of blocks; belongs to the range */
  BLOCK_FREE,
  BLOCK_PARKED, /* free too, but neither merged nor listed: the one that its pool freed last */
  BLOCK_ALLOCATED,
  BLOCK_DEFERRED, /* freed by the program, but a stream still uses it */
};

struct pool;

struct block {
  _Alignas(64) openreg_block shown;
  struct block *prev, *next; /* neighbours by address, a ring through the range's edge */
  struct pool *pool;
  union {
    struct block *before, *less; /* FREE: in a list of one size, or in the tree */
    struct block *waiting;       /* DEFERRED: the next one that waits */
    struct block *spare;         /* RECYCLED: the next one in the slab */
  };
  union {
    struct block *after, *greater;
  };
  uint64_t streams[STREAM_WORDS]; /* a bit for each stream that was recorded */
  enum block_state state;
};

_Static_assert(offsetof(struct block, shown) == 0, "a shown block is cast to its block");
_Static_assert(sizeof(struct block) == 128, "a block is two cache lines");

static inline void block_add_stream(struct block *block, int stream) {
  block->streams[stream / 64] |= UINT64_C(1) << stream % 64;
}

static inline struct block *block_of(openreg_block *shown) {
  return (struct block *)shown;
}
static inline char *block_address(const struct block *block) {
  return block->shown.address;
}
static inline char *block_end(const struct block *block) {
  return block_address(block) + block->shown.bytes;
}
static inline bool block_has_streams(const struct block *block) {
  uint64_t streams = 0;
  for (int word = 0; word < STREAM_WORDS; word++)
    streams |= block->streams[word];
  return streams != 0;
}

/* ---- the host's memory (pages.c) ------------------------------------------------------------- */

/* Zeroed memory for records, of which only what is touched ever counts, and which is never given
 * back; NULL and the sentence when the host has none. */
void *pages_map(size_t bytes);
/* The same for the program's use: refused when the host plainly lacks it. Private to the process,
 * so that a forked one has its own copy. */
void *pages_map_pinned(size_t bytes);
/* Gives whole pages back. Errors: SYSTEM. */
openreg_status pages_unmap(void *pages, size_t bytes);

/* ---- slabs: records that are recycled (slab.c) ----------------------------------------------- */

struct slab {
  struct block *first; /* every record starts with a block */
  size_t record_bytes;
  size_t available, taken;
};

/* Makes at least `count` records available. False when the host has no memory. */
bool slab_grow(struct slab *slab, size_t count);
/* Makes sure that the next `count` takes succeed, so that work once begun cannot fail half-way. */
static inline bool slab_ensure(struct slab *slab, size_t count) {
  return slab->available >= count || slab_grow(slab, count);
}
/* A record whose fields are those of its last use. */
void *slab_take(struct slab *slab);
void slab_put(struct slab *slab, void *record);

/* ---- pools (pool.c) and their free lists (freelist.c) ---------------------------------------- */

/* The free blocks of up to SMALL_BYTES, one list for each multiple of UNIT_BYTES with a bit for
 * each list that has one; and the larger ones, a treap ordered by size, then address. */
struct freelist {
  uint64_t summary; /* a bit for each word of `occupied` that is not 0 */
  uint64_t occupied[CLASS_WORDS];
  struct block *classes[CLASS_COUNT];
  struct block *tree;
};

void freelist_insert(struct freelist *list, struct block *block);
void freelist_remove(struct freelist *list, struct block *block);
/* The smallest block of at least `bytes`, at the lowest address if it is larger than SMALL_BYTES;
 * NULL when there is none. */
struct block *freelist_best(const struct freelist *list, size_t bytes);
/* Whether the structure agrees with itself; adds its blocks to `count`. */
bool freelist_is_valid(const struct freelist *list, size_t *count);

/* Free memory, as far as emptying the cache could not give it back. */
struct splits {
  int64_t pieces, bytes;
};

struct pool {
  struct freelist free;
  struct block *parked;        /* NULL: none */
  struct splits parked_change; /* what parking it changed, and taking it changes back */
  int32_t stream;
  int kind; /* OPENREG_POOL_SMALL or OPENREG_POOL_LARGE */
};

struct allocator;

/* The stream's two pools, small and large, made on first use; NULL and the sentence without host
 * memory. */
struct pool *pools_make(struct allocator *allocator, int stream);
/* Ends a block that is in no free list after `bytes`. The rest is a block without a state, which is
 * returned. Uses one record. */
struct block *block_cut(struct allocator *allocator, struct block *block, size_t bytes);
/* Takes `bytes` of the parked block if it has just these, else of the smallest free block that has
 * them; the rest stays free. When there is none: NULL, with nothing parked. Uses one record. */
struct block *pool_take(struct allocator *allocator, struct pool *pool, size_t bytes);
/* Makes a block of its segment free. It is parked; the one before it is merged. */
void pool_put(struct allocator *allocator, struct block *block);
/* The same for an active block that no one uses any more, with the statistics. */
void pool_free(struct allocator *allocator, struct block *block);
/* Merges the parked block, if there is one; those of all pools. */
void pool_merge(struct allocator *allocator, struct pool *pool);
void pools_merge(struct allocator *allocator);
/* In and out of the free list. */
void pool_insert(struct block *block);
void pool_remove(struct block *block);

/* The part of a range of free bytes that can go back to the system: whole granules. Empty
 * (from == to) when there is none. */
struct span {
  char *from, *to;
};
struct span whole_granules(const char *begin, const char *end);

/* ---- ranges of the arena (segments.c) -------------------------------------------------------- */

struct range {
  struct block edge; /* first and last of the ring of blocks; alone in an unreserved range */
  struct range *below, *above;
  char *address;
  size_t bytes;
  struct pool *pool; /* NULL: unreserved */
};

void segments_initialize(struct allocator *allocator, char *base, size_t bytes);
/* Reserves enough for a free block of at least `bytes` in the pool. Nothing is parked there, before
 * or after.
 * Errors: OUT_OF_MEMORY (ledger, fraction, or no room in the arena) and others of the ledger.
 * Uses one record of each slab. */
openreg_status segment_reserve(struct allocator *allocator, struct pool *pool, size_t bytes);
/* Gives back the whole granules of every free block. */
openreg_status segments_release(struct allocator *allocator);

/* ---- the allocator of one device (allocator.c) ----------------------------------------------- */

/* What a pool kind holds now. The statistics of the same names follow at the end of an operation,
 * by the difference, as CUDA's do: no peak and no sum shows the middle of one. */
struct holding {
  int64_t segments, reserved_bytes;
  struct splits splits;
};

struct allocator {
  struct lock lock;
  int device;
  char *base;
  size_t capacity;
  size_t allowed_bytes; /* fraction * capacity */
  double fraction;
  struct range lowest;   /* the first of all ranges; joined ranges keep the lower record */
  struct block **starts; /* the allocated block that starts at each unit of the arena */
  struct pool *pools[OPENREG_STREAMS_PER_DEVICE]; /* two each: small, large; NULL: never used */
  struct block *deferred;
  struct slab blocks, ranges;
  size_t empty_blocks; /* allocated blocks of 0 bytes */
  struct holding holding[OPENREG_POOL_KINDS];
  openreg_memory_stats stats;
};

/* The device's allocator, made on first use. Errors: INVALID_DEVICE, BAD_FORK,
 * INVALID_CONFIGURATION, SYSTEM. */
openreg_status allocator_open(int device, struct allocator **allocator);
/* The same, but NULL for a device that was never used. */
openreg_status allocator_peek(int device, struct allocator **allocator);
/* The one of an allocated block, which exists. */
struct allocator *allocator_of(const struct block *block);

static inline struct block **allocator_start(const struct allocator *allocator,
                                             const void *address) {
  return &allocator->starts[(size_t)((const char *)address - allocator->base) / UNIT_BYTES];
}

/* Records the sentence of a request that failed, and returns OUT_OF_MEMORY (report.c). */
openreg_status report_out_of_memory(struct allocator *allocator, size_t bytes);

/* ---- blocks that wait for other streams (deferred.c) ----------------------------------------- */

/* Whether a stream recorded on the block has work left; forgets those that have not. */
bool block_is_busy(struct block *block);
void deferred_push(struct allocator *allocator, struct block *block);
/* Frees the blocks whose streams have finished. */
void deferred_poll(struct allocator *allocator);
/* Waits for every stream that a block waits for, with the lock let go meanwhile, and polls. */
openreg_status deferred_wait(struct allocator *allocator);

/* ---- statistics (stats.c) -------------------------------------------------------------------- */

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

/* A block became the program's; is no longer; may be used again. */
void stats_block_allocated(struct allocator *allocator, const struct block *block);
void stats_block_freed(struct allocator *allocator, const struct block *block);
void stats_block_inactive(struct allocator *allocator, const struct block *block);
/* Bring the statistics that follow a holding up to date. */
void stats_settle_segments(struct allocator *allocator, int kind);
void stats_settle_splits(struct allocator *allocator, int kind);
/* Brings those of OPENREG_POOL_ALL up to date: only their peaks are so at all times. */
void stats_add_up(struct allocator *allocator);

#pragma GCC visibility pop
#endif
