/* internal.h: the structures of the caching allocator, shared by its files and by nobody else.
 *
 * An arena is a list of ranges in address order that cover it without a gap. A range is either
 * unreserved or a segment: reserved for one pool and cut into blocks without a gap. A pool holds
 * the free blocks of one stream and one kind of size. What must be true whenever a device's lock is
 * free (openreg_memory_is_valid walks all of it):
 *
 *   lowest.address == base, range.address + range.bytes == range.above.address, the last == end
 *   range.pool != range.above.pool                       (neighbours of one owner are one range)
 *   pool.is_unsplit  =>  not so for its ranges, each of which is one block
 *   segment.address == first block's address, block.address + block.bytes == block.next.address
 *   block.state == FREE  =>  block.next.state != FREE    (free neighbours are one block)
 *   block.state == FREE  <=> block is in its pool's free list
 *   block.streams != 0  =>  block.state is ALLOCATED, DEFERRED or LENT
 *   block.state == ALLOCATED and block.bytes > 0  <=>  starts[unit of block.address] == block
 *   block.is_shared  =>  block.state is ALLOCATED or AWAITING_IMPORTERS                (exported,
 * not withdrawn) block.state == DEFERRED <=> block is in `deferred`, with streams block.state is
 * AWAITING_IMPORTERS or CLOSING_IMPORT <=> block is in `awaiting` block.state == IMPORTED <=> block
 * is in `imports`; then, and when RETURNED: in no range, in no pool, shared pool.reserved_bytes ==
 * the sum over its ranges; of a spare pool, which has no block, 0 every statistic == the sum over
 * the blocks or ranges that it speaks of tally.room == the peak - what there is, never below 0 with
 * OPENREG_DEBUG_MEMORY=1: what debug.c says of patterns, and a block that is ALLOCATED, DEFERRED or
 * LENT ends ZONE_BYTES above what it shows
 *
 * Some of it only when `again` was accounted for, which allocator_lock does first of all.
 *
 * No function here locks except those that allocator.h names, and openreg_shared_find; the others
 * are called with the lock of their device held. The lock of the list of memory pools (mempool.c)
 * is taken under a device's. Pinned memory has a lock and a pool of its own (pinned.c), and uses
 * slabs, pages and single statistics only.
 */
#ifndef OPENREG_ALLOCATOR_INTERNAL_H
#define OPENREG_ALLOCATOR_INTERNAL_H

#include "allocator/allocator.h"
#include "allocator/lock.h"

#include <assert.h>
#include <stdlib.h>

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
  BLOCK_PARKED, /* free, but neither merged nor listed yet: also what `again` says is free */
  BLOCK_ALLOCATED,
  BLOCK_DEFERRED,           /* freed by the program, but a stream still uses it */
  BLOCK_AWAITING_IMPORTERS, /* freed by the program, but another process has it; counts as allocated
                             */
  BLOCK_IMPORTED,           /* the program's, but the memory of another process */
  BLOCK_CLOSING_IMPORT,     /* an import freed by the program, but a stream still uses it */
};

struct pool;

struct block {
  _Alignas(64) openreg_block shown;
  struct block *prev, *next; /* neighbours by address, a ring through the range's edge; IMPORTED:
                              * neighbours in `imports` */
  enum block_state state;
  bool is_shared; /* more than one process has it: exported or imported */
  struct pool *pool;
  union {
    struct block *before, *less; /* FREE: in a list of one size, or in the tree */
    struct block *waiting;       /* DEFERRED, LENT, RETURNED: the next one that waits */
    struct block *spare;         /* RECYCLED: the next one in the slab */
  };
  union {
    struct block *after, *greater;
  };
  uint64_t streams[STREAM_WORDS]; /* a bit for each stream that was recorded */
};

_Static_assert(offsetof(struct block, shown) == 0, "a shown block is cast to its block");
_Static_assert(sizeof(struct block) == 128, "a block is two cache lines");
_Static_assert(offsetof(struct block, pool) == 64, "what neighbours ask of it is in the first");

static inline void block_add_stream(struct block *block, int stream) {
  block->streams[stream / 64] |= UINT64_C(1) << stream % 64;
}

static inline struct block *block_of(openreg_block *shown) {
  return (struct block *)shown;
}
static inline char *block_address(const struct block *block) {
  return block->shown.address;
}
static inline bool block_is_active(const struct block *block) {
  return block->state == BLOCK_ALLOCATED || block->state == BLOCK_DEFERRED ||
         block->state == BLOCK_AWAITING_IMPORTERS;
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
void *openreg_pages_map(size_t bytes);
/* The same for the program's use: refused when the host plainly lacks it. Private to the process,
 * so that a forked one has its own copy. */
void *openreg_pages_map_pinned(size_t bytes);
/* Gives whole pages back. Errors: SYSTEM. */
openreg_status openreg_pages_unmap(void *pages, size_t bytes);

/* ---- slabs: records that are recycled (slab.c) ----------------------------------------------- */

struct slab {
  struct block *first; /* every record starts with a block */
  size_t record_bytes;
  size_t available, made;
};

/* Makes at least `count` records available. False when the host has no memory. */
bool openreg_slab_grow(struct slab *slab, size_t count);
/* Makes sure that the next `count` takes succeed, so that work once begun cannot fail half-way. */
static inline bool slab_ensure(struct slab *slab, size_t count) {
  return slab->available >= count || openreg_slab_grow(slab, count);
}
static inline size_t slab_taken(const struct slab *slab) {
  return slab->made - slab->available;
}

/* A record whose fields are those of its last use. */
static inline void *slab_take(struct slab *slab) {
  struct block *record = slab->first;
  assert(record && record->state == BLOCK_RECYCLED);
  slab->first = record->spare;
  slab->available--;
  return record;
}
static inline void slab_put(struct slab *slab, void *record) {
  struct block *block = record;
  assert(slab->available < slab->made && block->state != BLOCK_RECYCLED);
  block->state = BLOCK_RECYCLED;
  block->spare = slab->first;
  slab->first = block;
  slab->available++;
}

/* ---- pools (pool.c) and their free lists (freelist.c) ---------------------------------------- */

/* The free blocks of up to SMALL_BYTES, one list for each multiple of UNIT_BYTES with a bit for
 * each list that has one; and the larger ones, a treap ordered by size, then address. */
struct freelist {
  uint64_t summary; /* a bit for each word of `occupied` that is not 0 */
  uint64_t occupied[CLASS_WORDS];
  struct block *classes[CLASS_COUNT];
  struct block *tree;
};

/* Whether the structure agrees with itself; adds its blocks to `count`. */
bool openreg_freelist_is_valid(const struct freelist *list, size_t *count);

/* Free memory, as far as emptying the cache could not give it back. */
struct splits {
  int64_t pieces, bytes;
};

struct pool {
  struct tally *tally; /* of its kind */
  int64_t reserved_bytes;
  uint64_t mempool;
  int32_t stream;
  int kind;          /* OPENREG_POOL_SMALL or OPENREG_POOL_LARGE */
  bool is_unsplit;   /* a memory pool of OPENREG_MEMPOOL_NO_SPLIT */
  struct pool *next; /* of a small pool, whose large one follows it in memory: the next two */
  struct freelist free;
};

struct allocator;

/* A memory pool's two pools for a stream, small and large. `open` makes them on first use: NULL and
 * the sentence without host memory. `find`: NULL when there are none. */
struct pool *openreg_pools_open(struct allocator *allocator, uint64_t mempool, int stream);
struct pool *openreg_pools_find(struct allocator *allocator, uint64_t mempool, int stream);
/* Has those of memory pools that hold nothing ready for others. */
void openreg_pools_retire(struct allocator *allocator);
/* Ends a block that is in no free list after `bytes`. The rest is a block without a state, which is
 * returned. Uses one record. */
struct block *openreg_block_cut(struct allocator *allocator, struct block *block, size_t bytes);
/* Makes an active block of its segment free that no one uses any more, with the statistics of free
 * memory. */
void openreg_pool_free(struct allocator *allocator, struct block *block);
/* What the free memory's figures would change by if an active block became free. */
struct splits openreg_pool_free_change(const struct block *block);
/* In and out of the free list. */
void openreg_pool_insert(struct block *block);
void openreg_pool_remove(struct block *block);

/* The part of a range of free bytes that can go back to the system: whole granules. Empty
 * (from == to) when there is none. */
struct span {
  char *from, *to;
};
struct span openreg_whole_granules(const char *begin, const char *end);

/* ---- ranges of the arena (segments.c) -------------------------------------------------------- */

struct range {
  struct block edge; /* first and last of the ring of blocks; alone in an unreserved range */
  struct range *below, *above;
  char *address;
  size_t bytes;
  struct pool *pool; /* NULL: unreserved */
};

void openreg_segments_initialize(struct allocator *allocator, char *base, size_t bytes);
/* Reserves enough for a free block of at least `bytes` in the pool, and adds to `change` what that
 * changes the free memory's figures by. Errors: OUT_OF_MEMORY (ledger, fraction, or no room in the
 * arena) and others of the ledger. Uses one record of each slab. */
openreg_status openreg_segment_reserve(struct allocator *allocator, struct pool *pool, size_t bytes,
                                       struct splits *change);
/* Gives back the whole granules of every free block of the memory pool `*only`; for NULL, of all
 * that nobody keeps them for. NOT_READY: but for those of streams that have work. */
openreg_status openreg_segments_release(struct allocator *allocator, const uint64_t *only);

/* ---- the allocator of one device (allocator.c) ----------------------------------------------- */

/* What a pool kind holds now. The statistics of the same names follow at the end of an operation,
 * by the difference, as CUDA's do: no peak and no sum shows the middle of one. */
struct holding {
  int64_t segments, reserved_bytes;
};

/* What each memory pool has reserved (mempool_stats.c). */
struct accounts {
  openreg_mempool_stats *list;
  size_t count, room;
};

/* What the statistics of one kind are made of when they are looked at (stats.c). */
struct usage {
  int64_t blocks, bytes, requested_bytes;
};
struct headroom { /* what is left until a peak is passed: current == peak - room */
  struct usage live;
  struct splits splits;
};
struct tally {
  struct headroom room; /* of what the program has, and of free memory */
  struct usage given;   /* all that were ever allocated */
  struct splits risen;  /* the sum of all increases */
  struct usage waiting; /* deferred ones */
  /* What there was when sums were reset. */
  struct usage given_before, returned_before, unused_before;
  struct splits splits_before;
};

/* The block of the last operation, if that was an allocation from free memory. Freeing it makes
 * everything as it was before, and allocating the same again as it was after: so these two, as
 * often as they take turns, only change `free` and `times` and are accounted for by the next
 * operation of another kind. Programs do this all the time, with each temporary result. */
struct again {
  struct block *block; /* NULL: none */
  bool is_free;        /* the program gave it back */
  int64_t times;       /* it was allocated again */
};

/* Of OPENREG_DEBUG_MEMORY=1 (debug.c). */
struct stack;
struct damage;
struct debug {
  struct stack **stacks; /* of the allocation that last began at each unit of the arena */
  struct damage *found;  /* to be told when the lock is free */
  struct stack *to_drop; /* then, too */
};

struct allocator {
  struct lock lock;
  struct again again;
  int device;
  char *base;
  size_t capacity;
  struct block **starts; /* the allocated block that starts at each unit of the arena */
  struct block *deferred, *awaiting, *imports;
  struct slab blocks, ranges;
  struct tally tallies[OPENREG_POOL_KINDS];       /* of all kinds together: `room` only */
  struct pool *pools[OPENREG_STREAMS_PER_DEVICE]; /* of memory pool 0, two each; NULL: not made */
  struct pool *all_pools, *spare_pools;           /* every two that there are; that are not used */
  struct range lowest;  /* the first of all ranges; joined ranges keep the lower record */
  size_t allowed_bytes; /* fraction * capacity */
  double fraction;
  struct accounts accounts;
  size_t empty_blocks; /* allocated blocks of 0 bytes */
  struct debug debug;
  struct holding holding[OPENREG_POOL_KINDS];
  openreg_memory_stats
      stats; /* peaks and counters; the rest is as of the last openreg_stats_add_up */
};

/* The device's allocator, made on first use. Errors: INVALID_DEVICE, BAD_FORK,
 * INVALID_CONFIGURATION, SYSTEM. */
openreg_status openreg_allocator_open(int device, struct allocator **allocator);
/* The same, but NULL for a device that was never used. */
openreg_status openreg_allocator_peek(int device, struct allocator **allocator);
/* NULL also for a device that cannot be used, without a sentence. */
struct allocator *openreg_allocator_ready(int device);
/* The one of an allocated block; NULL in a forked process. */
struct allocator *openreg_allocator_of(const struct block *block);
/* What becomes of an allocated block that the program freed and no other process has. */
void openreg_allocator_take_back(struct allocator *allocator, struct block *block);
/* Waits for what freed blocks wait for, and releases as openreg_segments_release does. */
openreg_status openreg_allocator_empty(struct allocator *allocator, const uint64_t *only);

/* ---- OPENREG_DEBUG_MEMORY=1 (debug.c) -------------------------------------------------------- */

/* Whether the devices that are used are watched: set before the first has an allocator. */
extern atomic_bool openreg_memory_debugged;

static inline bool memory_is_debugged(void) {
  return __builtin_expect(atomic_load_explicit(&openreg_memory_debugged, memory_order_relaxed), 0);
}

/* What lies behind each active block and is part of it: shown.bytes does not count it. */
enum { ZONE_BYTES = UNIT_BYTES };
static inline size_t zone_bytes(void) {
  return memory_is_debugged() ? ZONE_BYTES : 0;
}
static inline size_t block_extent(const struct block *block) {
  return block->shown.bytes + (block_is_active(block) ? zone_bytes() : 0);
}

/* Makes what a device needs for it, if its configuration says so. False without host memory. */
bool openreg_debug_open(struct allocator *allocator);
/* The stack of an allocation that begins, or NULL; to be dropped. Both without the lock. */
struct stack *openreg_debug_capture(void);
void openreg_debug_drop(struct stack *stack);
/* Memory becomes the pool's, the program's, the pool's again, the system's: each looks whether it
 * holds what it must, and fills it with what it must hold then. A stack is shared. */
void openreg_debug_reserved(char *address, size_t bytes);
void openreg_debug_handed_out(struct allocator *allocator, const struct block *block,
                              struct stack *stack);
void openreg_debug_freed(struct allocator *allocator, struct block *block);
void openreg_debug_release(struct allocator *allocator, const struct block *block,
                           struct span whole);
/* Gives the lock back and tells what was found. */
void openreg_debug_unlock(struct allocator *allocator);

/* ---- locking --------------------------------------------------------------------------------- */

/* Does what `again` stands for. */
void openreg_allocator_account_again(struct allocator *allocator);
static inline void allocator_account(struct allocator *allocator) {
  if (allocator->again.is_free || allocator->again.times)
    openreg_allocator_account_again(allocator);
  allocator->again.block = NULL;
}

/* Who locks a device's allocator finds everything accounted for. */
static inline void allocator_lock(struct allocator *allocator) {
  lock_take(&allocator->lock);
  allocator_account(allocator);
}
static inline void allocator_unlock(struct allocator *allocator) {
  if (memory_is_debugged() && (allocator->debug.found || allocator->debug.to_drop)) {
    openreg_debug_unlock(allocator);
    return;
  }
  lock_give(&allocator->lock);
}

static inline struct block **allocator_start(const struct allocator *allocator,
                                             const void *address) {
  return &allocator->starts[(size_t)((const char *)address - allocator->base) / UNIT_BYTES];
}

/* A request as the program made it. */
struct request {
  size_t bytes;
  uint64_t mempool;
  int stream;
  struct stack *stack; /* NULL but with OPENREG_DEBUG_MEMORY=1 */
};

/* Tells the observer and records the sentence of a request that failed, and returns OUT_OF_MEMORY
 * (report.c). */
openreg_status openreg_report_out_of_memory(struct allocator *allocator,
                                            const struct request *request);

/* ---- memory pools (mempool.c) ---------------------------------------------------------------- */

/* Whether there ever was another memory pool than 0: without one no thread looks for its own. */
extern atomic_bool openreg_mempools_exist;
uint64_t openreg_mempool_current_of_thread(int device);

static inline bool mempools_were_made(void) {
  return __builtin_expect(atomic_load_explicit(&openreg_mempools_exist, memory_order_relaxed), 0);
}
static inline uint64_t mempool_current(int device) {
  return mempools_were_made() ? openreg_mempool_current_of_thread(device) : 0;
}

/* Whether a pool's owner keeps its free memory from being given back with the cache. */
bool openreg_mempool_is_kept(uint64_t mempool);
/* Whether its segments are neither cut nor joined. */
bool openreg_mempool_is_unsplit(uint64_t mempool);
/* The next larger number of a pool that serves requests which fit nowhere else; 0: none. */
uint64_t openreg_mempool_next_on_oom(uint64_t mempool);

/* Makes the account of a memory pool; false and the sentence without host memory. */
bool openreg_mempool_account_open(struct allocator *allocator, uint64_t mempool);
/* A pool reserved `change` bytes, or gave them back. */
void openreg_mempool_account(struct allocator *allocator, const struct pool *pool, int64_t change);
void openreg_mempool_accounts_each(struct allocator *allocator, void (*change)(openreg_stat *stat));

/* ---- the observer (observer.c) --------------------------------------------------------------- */

extern _Atomic(openreg_memory_observer) openreg_installed_observer;

static inline bool memory_is_observed(void) {
  return __builtin_expect(
      atomic_load_explicit(&openreg_installed_observer, memory_order_acquire) != NULL, 0);
}

/* Call the observer, if there is one still. */
void openreg_observe_memory(const openreg_memory_event *event);
void openreg_observe_block(openreg_memory_action action, const struct block *block);
void openreg_observe_segment(openreg_memory_action action, int device, const struct pool *pool,
                             const char *address, size_t bytes);

/* ---- blocks that wait for other streams (deferred.c) ----------------------------------------- */

/* Whether a stream recorded on the block has work left; forgets those that have not. */
bool openreg_block_is_busy(struct block *block);
void openreg_deferred_push(struct allocator *allocator, struct block *block);
/* Frees the blocks whose streams have finished. */
void openreg_deferred_poll(struct allocator *allocator);
/* Waits for the work of the device, with the lock let go meanwhile, and polls. */
openreg_status openreg_deferred_wait(struct allocator *allocator);

/* ---- blocks that other processes have, or have lent (shared.c) ---------------------------------
 */

/* Frees a block that is shared, now or when that is over. */
void openreg_shared_free(struct allocator *allocator, struct block *block);
/* Looks again at those that wait. A system call for each: only for who would make others. */
void openreg_shared_poll(struct allocator *allocator);
/* The import that starts at an address beyond the arena, or NULL. Takes the lock. */
openreg_block *openreg_shared_find(struct allocator *allocator, const void *address);

#pragma GCC visibility pop
#endif
