/* internal.h: the structures of the caching allocator, shared by its files and by nobody else.
 *
 * The words are those of CUDA's allocator: a *segment* is memory that was had from the driver, here
 * the arena and the ledger; it is cut into *blocks*; free blocks are in a *pool*. What is done with
 * them, and what must be true of them, is told at the top of allocator.c.
 *
 * No function here locks except those that allocator.h names, openreg_shared_find and
 * openreg_allocator_wait_idle; the others are called with the lock of their device held. The lock
 * of the list of memory pools (mempool.c) and the ledger's are taken under a device's, never the
 * other way round. Pinned memory has a lock and a pool of its own (pinned.c), and uses slabs, pages
 * and single statistics only.
 */
#ifndef OPENREG_ALLOCATOR_INTERNAL_H
#define OPENREG_ALLOCATOR_INTERNAL_H

#include "allocator/allocator.h"
#include "allocator/lock.h"
#include "allocator/slab.h"
#include "device/capture.h"

#include <assert.h>
#include <stdlib.h>

#pragma GCC visibility push(hidden)

/* c10/core/AllocatorConfig.h has these constants, under the names in the comments. */
#define MOST_REQUESTED_BYTES ((size_t)1 << 60) /* CUDA refuses an exabyte and more */
enum {
  UNIT_BYTES = 512,                /* kMinBlockSize: every block is a multiple */
  SMALL_BYTES = 1 << 20,           /* kSmallSize: the largest request of the small pool */
  SMALL_SEGMENT_BYTES = 2 << 20,   /* kSmallBuffer */
  OWN_SEGMENT_BYTES = 10 << 20,    /* kMinLargeAlloc: from here on segments fit their request */
  OWN_SEGMENT_STEP_BYTES = 2 << 20 /* kRoundLarge: and are multiples of this */
};

static inline size_t round_up(size_t bytes, size_t step) {
  return (bytes + step - 1) / step * step;
}

struct allocator;
struct pool;
struct segment;

/* ---- blocks ---------------------------------------------------------------------------------- */

enum block_state {
  BLOCK_RECYCLED, /* a record without memory, in its slab */
  BLOCK_FREE,
  BLOCK_UNMAPPED, /* addresses of an expandable segment without memory */
  BLOCK_PARKED,   /* freed by the program, and not yet accounted for: see struct again */
  BLOCK_ALLOCATED,
  BLOCK_AWAITING_STREAMS,   /* freed by the program, but a stream may still use it */
  BLOCK_AWAITING_IMPORTERS, /* freed by the program, but another process has it; counts as allocated
                             */
  BLOCK_IMPORTED,           /* the program's, but the memory of another process */
  BLOCK_CLOSING_IMPORT,     /* an import freed by the program, but a stream still uses it */
};

/* Work of another stream that may use a block (events.c). */
struct use {
  struct use *next;
  openreg_event *event; /* recorded when the block is freed */
  struct block *block;
  int32_t stream;
};

struct block {
  _Alignas(64) openreg_block shown;
  /* Neighbours in the segment, NULL at its ends. IMPORTED: in `imports`. */
  struct block *prev, *next;
  struct segment *segment;
  enum block_state state;
  int32_t events; /* AWAITING_STREAMS: events that are not known to be done */
  struct pool *pool;
  bool is_shared; /* more than one process has it: exported or imported */
  union {
    struct block *less;    /* FREE: in its pool's tree */
    struct block *waiting; /* AWAITING_STREAMS to be idle, AWAITING_IMPORTERS, CLOSING_IMPORT */
  };
  union {
    struct block *greater; /* FREE */
    struct use *uses;      /* ALLOCATED and later: by other streams than its own */
  };
  uint64_t searches; /* FREE: those of its pool when it became so; see pool.searches */
};

_Static_assert(offsetof(struct block, shown) == 0, "a shown block is cast to its block");
_Static_assert(sizeof(struct block) == 128, "a block is two cache lines");

static inline struct block *block_of(openreg_block *shown) {
  return (struct block *)shown;
}
static inline char *block_address(const struct block *block) {
  return block->shown.address;
}
static inline char *block_end(const struct block *block) {
  return block_address(block) + block->shown.bytes;
}
static inline bool block_is_active(const struct block *block) {
  return block->state == BLOCK_ALLOCATED || block->state == BLOCK_AWAITING_STREAMS ||
         block->state == BLOCK_AWAITING_IMPORTERS;
}
/* Whether it is a part only of its segment. */
static inline bool block_is_split(const struct block *block) {
  return block->prev || block->next;
}

/* ---- segments (segment.c, expandable.c) ------------------------------------------------------ */

struct segment {
  struct segment *below, *above; /* by address, of all segments of the device */
  char *address;
  size_t bytes;      /* of an expandable one: of its addresses */
  size_t page_bytes; /* of an expandable one: what it is mapped in; 0 for others */
  struct block *first;
  struct pool *pool;
  uint64_t number; /* in the order in which segments were made */
  int32_t stream;
  bool is_raw;                  /* of openreg_device_malloc */
  openreg_memory_source source; /* without functions: it lies in the arena by itself */
};

static inline bool block_is_expandable(const struct block *block) {
  return block->segment->page_bytes != 0;
}

static inline bool segment_is_sourced(const struct segment *segment) {
  return segment->source.allocate != NULL;
}

/* ---- pools (pool.c), and the order of their free blocks (tree.c) ------------------------------
 */

struct private_pool;

struct pool {
  struct block *free;         /* a tree ordered by stream, size, age of the segment, address */
  int kind;                   /* OPENREG_POOL_SMALL or OPENREG_POOL_LARGE */
  struct private_pool *owner; /* NULL: of memory pool 0 */
  uint64_t searches; /* since garbage is collected; a free block's age is counted in them */
};

/* What memory pool `mempool` is on one device. */
struct private_pool {
  uint64_t mempool;
  struct pool pools[OPENREG_POOL_KINDS]; /* of which the first is unused */
  size_t segments;
  bool is_unsplit; /* OPENREG_MEMPOOL_NO_SPLIT */
  openreg_memory_source source;
  struct private_pool *next;
};

static inline uint64_t pool_mempool(const struct pool *pool) {
  return pool->owner ? pool->owner->mempool : 0;
}

void openreg_tree_insert(struct block **tree, struct block *block);
void openreg_tree_remove(struct block **tree, struct block *block);
/* The first of a stream that has at least `bytes`, or of a stream after it; the last that comes
 * before that. NULL when there is none. */
struct block *openreg_tree_at_least(struct block *tree, int stream, size_t bytes);
struct block *openreg_tree_below(struct block *tree, int stream, size_t bytes);
/* The next in order, and the one before; or NULL. */
struct block *openreg_tree_after(struct block *tree, const struct block *block);
struct block *openreg_tree_before(struct block *tree, const struct block *block);
/* Whether it is in order; counts its blocks. */
bool openreg_tree_is_valid(const struct block *tree, size_t *count);

static inline void pool_insert(struct block *block) {
  block->state = BLOCK_FREE;
  block->searches = block->pool->searches;
  openreg_tree_insert(&block->pool->free, block);
}
static inline void pool_remove(struct block *block) {
  assert(block->state == BLOCK_FREE);
  openreg_tree_remove(&block->pool->free, block);
}

/* A request as the program made it, and what follows from it. */
struct request {
  size_t bytes;         /* as asked */
  size_t rounded_bytes; /* of the block */
  size_t segment_bytes; /* of a segment that is made for it */
  uint64_t mempool;
  struct pool *pool;
  int stream;
  bool is_expandable;  /* expandable segments are on */
  bool is_exact;       /* the block is split wherever the request ends */
  bool is_rejected;    /* nothing more is tried (throw_on_cudamalloc_oom) */
  struct stack *stack; /* NULL but with OPENREG_DEBUG_MEMORY=1 */
};

size_t openreg_round_size(const openreg_memory_settings *settings, size_t bytes);
/* Completes a request of which bytes, mempool and stream are known. False and the sentence without
 * host memory. */
bool openreg_request_complete(struct allocator *allocator, struct request *request);
/* What a memory pool other than 0 is on this device. `find`: NULL when it is nothing yet. `open`:
 * NULL and the sentence without host memory. */
struct private_pool *openreg_private_pool_find(struct allocator *allocator, uint64_t mempool);
struct private_pool *openreg_private_pool_open(struct allocator *allocator, uint64_t mempool);
/* The best fit, out of its pool's tree; or NULL. */
struct block *openreg_pool_take(struct allocator *allocator, const struct request *request);

/* ---- splitting and merging (split.c) --------------------------------------------------------- */

/* Makes a block that was taken out of its pool, or is new, the program's, split if it must be; with
 * all statistics. Uses one record. */
openreg_block *openreg_block_hand_out(struct allocator *allocator, struct block *block,
                                      const struct request *request);
/* Makes an active block that nobody uses any more free, merged with its neighbours. */
void openreg_block_make_free(struct allocator *allocator, struct block *block);
/* Ends a block after `bytes`; gives the rest, without a state. Uses one record. */
struct block *openreg_block_cut(struct allocator *allocator, struct block *block, size_t bytes);
/* Takes the neighbours of the same state into a block that is in no tree. Gives how many. */
int openreg_block_merge(struct allocator *allocator, struct block *block, enum block_state state);

/* ---- memory from the driver, and back -------------------------------------------------------- */

/* Makes a segment for a request; `block` is in no tree. Errors: OUT_OF_MEMORY (limit, ledger, no
 * addresses), and others of the ledger. */
openreg_status openreg_segment_reserve(struct allocator *allocator, struct request *request,
                                       struct block **block);
/* Gives the segment of a free block that is all of it back. NOT_READY, and nothing is changed, when
 * the device must be waited for first; and errors of the system. */
openreg_status openreg_segment_release(struct allocator *allocator, struct block *block);
/* A segment of so many bytes, from the device, of which nothing was counted yet; as reserve. */
openreg_status openreg_segment_take(struct allocator *allocator, const struct request *request,
                                    size_t bytes, struct segment **segment);
/* Room for a segment in the arena, of the pool and the stream of a request; NULL when there is
 * none. Uses one record of each kind. */
struct segment *openreg_segment_place(struct allocator *allocator, const struct request *request,
                                      size_t bytes);
/* The same for memory of a source, which lies somewhere already. */
struct segment *openreg_segment_add(struct allocator *allocator, const struct request *request,
                                    char *address, size_t bytes,
                                    const openreg_memory_source *source);
void openreg_segment_remove(struct allocator *allocator, struct segment *segment);
/* Pages of a free block go to the ledger and the system, if they are not a source's. Errors as of
 * release. */
openreg_status openreg_segment_give_back(struct allocator *allocator, const struct block *block,
                                         char *address, size_t bytes);

/* Maps memory for a request into an expandable segment; as openreg_segment_reserve. */
openreg_status openreg_expandable_reserve(struct allocator *allocator,
                                          const struct request *request, struct block **block);
/* Unmaps the whole pages of a free block; errors as of openreg_segment_release. */
openreg_status openreg_expandable_unmap(struct allocator *allocator, struct block *block);

/* ---- memory of sources (source.c) ------------------------------------------------------------ */

/* Asks a source for a segment; lets the lock go meanwhile. Errors: OUT_OF_MEMORY, INVALID_ADDRESS
 * for what is no memory of the device, SYSTEM. */
openreg_status openreg_source_take(struct allocator *allocator, const struct request *request,
                                   const openreg_memory_source *source, size_t bytes,
                                   struct segment **segment);
/* Gives `returned` back to sources; lets the lock go meanwhile. */
void openreg_source_return(struct allocator *allocator);
/* The source of all blocks, if there is one. */
openreg_memory_source openreg_source_of_process(void);
/* INVALID_ARGUMENT for one function without the other; NULL is fine. */
openreg_status openreg_source_require(const openreg_memory_source *source);

/* ---- while the cache is off (uncached.c) -------------------------------------------------------
 */

static inline bool block_is_uncached(const struct block *block) {
  return block->pool->kind == OPENREG_POOL_ALL;
}
/* A block that nothing was counted of yet. Errors as of openreg_segment_reserve. */
openreg_status openreg_uncached_allocate(struct allocator *allocator, struct request *request,
                                         struct block **block);
/* Gives it back, now or when that can be; lets the lock go while it waits. */
void openreg_uncached_free(struct allocator *allocator, struct block *block);
/* Gives it back now. Errors as of openreg_segment_release. */
openreg_status openreg_uncached_release(struct allocator *allocator, struct block *block);

/* ---- when nothing fits (reclaim.c) ----------------------------------------------------------- */

/* These let the lock go where the device must be waited for. NOT_PERMITTED on a worker, SYSTEM. */
openreg_status openreg_collect_garbage(struct allocator *allocator);
/* OUT_OF_MEMORY when what it gave back is less than the request needs. */
openreg_status openreg_release_oversize(struct allocator *allocator, const struct request *request);
/* What empty_cache does; for `only` not NULL, with that memory pool if nobody keeps it. */
openreg_status openreg_allocator_empty(struct allocator *allocator, const uint64_t *only);

/* ---- blocks that wait for streams (events.c) --------------------------------------------------
 */

struct uses {
  struct use *first, **last;
};

void openreg_events_initialize(struct allocator *allocator);
/* Frees a block that streams may use, when they are done. */
void openreg_events_defer(struct allocator *allocator, struct block *block);
/* Frees the blocks whose events are done, as far as can be told without waiting. */
void openreg_events_process(struct allocator *allocator);
/* Waits for all events, with the lock let go meanwhile, and frees their blocks; for `only` not NULL
 * those of one memory pool. */
openreg_status openreg_events_synchronize(struct allocator *allocator, const uint64_t *only);
/* Whether a stream that was recorded on an import has work left. */
bool openreg_uses_are_busy(const struct block *block);
void openreg_uses_drop(struct allocator *allocator, struct block *block);

/* ---- statistics (stats.h, stats.c), memory pools' own (mempool_stats.c) -----------------------
 */

/* What each memory pool has reserved. */
struct accounts {
  openreg_mempool_stats *list;
  size_t count, room;
};

/* ---- the allocator of one device (allocator.c) ----------------------------------------------- */

/* The block of the last operation, if that was an allocation from cached memory. Freeing it makes
 * everything as it was before, and allocating the same again as it was after: so these two, as
 * often as they take turns, only change `is_free` and `times`, and are accounted for before the
 * next operation of another kind. Programs do this all the time, with each temporary result. */
struct again {
  struct block *block; /* NULL: none */
  bool is_free;        /* the program gave it back */
  int64_t times;       /* it was freed and allocated again */
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
  size_t arena_bytes;
  size_t capacity;
  struct starts **starts; /* of each granule of the arena; NULL where there never was memory */
  openreg_memory_settings settings;
  struct pool pools[OPENREG_POOL_KINDS]; /* of memory pool 0; the first is that of uncached.c */
  struct private_pool *private_pools;    /* in the order of mempool_hash */
  struct private_pool *spare_private_pools;
  struct segment *lowest;                       /* by address */
  struct segment *first_sourced, *last_sourced; /* as they were made; they lie in others */
  struct segment *returned;                     /* to be given back to sources */
  openreg_memory_source source;                 /* of all blocks */
  uint64_t segments_made;
  struct segment *below_gap; /* all up to it lie without a gap; NULL: none do */
  struct uses events[OPENREG_STREAMS_PER_DEVICE]; /* recorded, in their order */
  size_t event_count;
  struct block *awaiting_idle, *awaiting_importers, *imports;
  struct slab blocks, segments, uses;
  size_t allowed_bytes; /* the limit of set_fraction; SIZE_MAX for none */
  bool has_waited;      /* the operation that has the lock waited for the device */
  struct accounts accounts;
  size_t empty_blocks; /* allocated blocks of 0 bytes */
  struct debug debug;
  openreg_memory_stats stats;
};

/* All segments, those of sources last; NULL begins, and ends. */
static inline struct segment *segment_next(const struct allocator *allocator,
                                           const struct segment *segment) {
  struct segment *next = segment ? segment->above : allocator->lowest;
  return next || (segment && segment_is_sourced(segment)) ? next : allocator->first_sourced;
}

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
/* Lets the lock go, waits for the work of the device, and takes the lock. */
openreg_status openreg_allocator_wait_idle(struct allocator *allocator);

/* The allocated block that starts at each unit of a granule. */
enum { GRANULE_BYTES = 2 << 20, GRANULE_UNITS = GRANULE_BYTES / UNIT_BYTES };
struct starts {
  struct block *at[GRANULE_UNITS];
};

/* Makes those of a range of addresses, before any block of it is handed out; they stay for good.
 * False and the sentence without host memory. */
bool openreg_starts_make(struct allocator *allocator, const char *address, size_t bytes);

static inline struct block **allocator_start(const struct allocator *allocator,
                                             const void *address) {
  size_t unit = (size_t)((const char *)address - allocator->base) / UNIT_BYTES;
  return &allocator->starts[unit / GRANULE_UNITS]->at[unit % GRANULE_UNITS];
}

/* The settings as they are when a device is first used (config.c). */
void openreg_settings_initialize(struct allocator *allocator);

/* ---- OPENREG_DEBUG_MEMORY=1 (debug.c) -------------------------------------------------------- */

/* Whether the devices that are used are watched: set before the first has an allocator. */
extern atomic_bool openreg_memory_debugged;

static inline bool memory_is_debugged(void) {
  return __builtin_expect(atomic_load_explicit(&openreg_memory_debugged, memory_order_relaxed), 0);
}

/* What is added to each request, for the zone behind it. */
enum { ZONE_BYTES = UNIT_BYTES };
static inline size_t zone_bytes(void) {
  return memory_is_debugged() ? ZONE_BYTES : 0;
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
void openreg_debug_freed(struct allocator *allocator, const struct block *block);
void openreg_debug_release(struct allocator *allocator, const struct block *block, char *address,
                           size_t bytes);
/* Gives the lock back and tells what was found. */
void openreg_debug_unlock(struct allocator *allocator);

/* ---- records of blocks ----------------------------------------------------------------------- */

static inline struct block *block_take_record(struct allocator *allocator) {
  struct block *block = slab_take(&allocator->blocks);
  assert(block->state == BLOCK_RECYCLED);
  return block;
}
static inline void block_put_record(struct allocator *allocator, struct block *block) {
  assert(block->state != BLOCK_RECYCLED);
  block->state = BLOCK_RECYCLED;
  slab_put(&allocator->blocks, block);
}

/* ---- locking --------------------------------------------------------------------------------- */

/* Does what `again` stands for. */
void openreg_allocator_account_again(struct allocator *allocator);
/* Begins an operation that is not the same again. */
static inline void allocator_account(struct allocator *allocator) {
  if (allocator->again.is_free || allocator->again.times)
    openreg_allocator_account_again(allocator);
  allocator->again.block = NULL;
  allocator->has_waited = false;
}

/* Who locks a device's allocator finds everything accounted for. */
static inline void allocator_lock(struct allocator *allocator) {
  lock_take(&allocator->lock);
  allocator_account(allocator);
}
static inline void allocator_unlock(struct allocator *allocator) {
  while (__builtin_expect(allocator->returned != NULL, 0))
    openreg_source_return(allocator);
  if (memory_is_debugged() && (allocator->debug.found || allocator->debug.to_drop)) {
    openreg_debug_unlock(allocator);
    return;
  }
  lock_give(&allocator->lock);
}

/* Counts and tells the observer of a request that failed, records the sentence, and returns
 * OUT_OF_MEMORY (report.c). */
openreg_status openreg_report_out_of_memory(struct allocator *allocator,
                                            const struct request *request);

/* ---- memory pools (mempool.c) ---------------------------------------------------------------- */

/* Whether there ever was another memory pool than 0: without one no thread looks for its own. */
extern atomic_bool openreg_mempools_exist;

/* Of a stream that captures: its capture's; else the thread's. */
uint64_t openreg_mempool_current_of(int device, int stream);

static inline bool mempools_were_made(void) {
  return __builtin_expect(atomic_load_explicit(&openreg_mempools_exist, memory_order_relaxed), 0);
}
static inline uint64_t mempool_current(int device, int stream) {
  return mempools_were_made() ? openreg_mempool_current_of(device, stream) : 0;
}

/* CUDA keeps its pools in hash tables, and goes through them in this order: that of Fibonacci
 * hashing. */
static inline uint64_t mempool_hash(uint64_t mempool) {
  return mempool * UINT64_C(11400714819323198485);
}

/* Whether it is 0 or has users: INVALID_ARGUMENT, BAD_FORK. */
openreg_status openreg_mempool_require(uint64_t mempool);
/* Whether a pool's users keep its free memory from being given back with the cache. */
bool openreg_mempool_is_kept(uint64_t mempool);
/* What one that is kept was made with: private_pool.is_unsplit and source. */
void openreg_mempool_describe(struct private_pool *pool);
/* The next of the pools that serve requests which fit nowhere else, in CUDA's order of them; 0: the
 * first; gives 0 for none. */
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
void openreg_observe_segment(openreg_memory_action action, const struct allocator *allocator,
                             const struct segment *segment, const char *address, size_t bytes);

/* ---- blocks that other processes have, or have lent (shared.c) --------------------------------
 */

/* Frees a block that is shared, now or when that is over. */
void openreg_shared_free(struct allocator *allocator, struct block *block);
/* Looks again at those that wait; whether any wait was over. A system call for each: only for who
 * would make others. */
bool openreg_shared_poll(struct allocator *allocator);
/* The import that starts at an address beyond the arena, or NULL. Takes the lock. */
openreg_block *openreg_shared_find(struct allocator *allocator, const void *address);

#pragma GCC visibility pop
#endif
