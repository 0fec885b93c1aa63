/* blocks.h: blocks, segments, pools and requests: the data structures of the caching allocator.
 *
 * The terms are those of CUDA's allocator. A *segment* is memory that came from the driver, which
 * here is the arena and the ledger. It is cut into *blocks*, and a *pool* holds the free blocks.
 * internal.h has the functions on them, the allocator of a device, and the rules of locking.
 */
#ifndef OPENREG_ALLOCATOR_BLOCKS_H
#define OPENREG_ALLOCATOR_BLOCKS_H

#include "allocator/allocator.h"

#include <assert.h>
#include <stdlib.h>

#pragma GCC visibility push(hidden)

/* The constants of c10/core/AllocatorConfig.h; the comments give their names there. */
#define MOST_REQUESTED_BYTES ((size_t)1 << 60) /* CUDA refuses one exabyte and more */
enum {
  UNIT_BYTES = 512,                /* kMinBlockSize: every block is a multiple of this */
  SMALL_BYTES = 1 << 20,           /* kSmallSize: the largest request of the small pool */
  SMALL_SEGMENT_BYTES = 2 << 20,   /* kSmallBuffer */
  OWN_SEGMENT_BYTES = 10 << 20,    /* kMinLargeAlloc: larger requests get segments of their size */
  OWN_SEGMENT_STEP_BYTES = 2 << 20 /* kRoundLarge: these segments are multiples of this */
};

static inline size_t round_up(size_t bytes, size_t step) {
  return (bytes + step - 1) / step * step;
}

struct allocator;
struct pool;
struct segment;

/* ---- blocks ---------------------------------------------------------------------------------- */

enum block_state {
  BLOCK_RECYCLED, /* an unused record in its slab */
  BLOCK_FREE,
  BLOCK_UNMAPPED, /* addresses of an expandable segment without memory */
  BLOCK_PARKED,   /* freed by the program, not flushed yet (fast_path.h) */
  BLOCK_ALLOCATED,
  BLOCK_AWAITING_STREAMS,   /* freed by the program; a stream may still use it */
  BLOCK_AWAITING_IMPORTERS, /* freed by the program; another process holds it; counts as allocated
                             */
  BLOCK_IMPORTED,           /* held by the program; the memory of another process */
  BLOCK_CLOSING_IMPORT,     /* an import that the program freed; a stream still uses it */
};

/* Another stream than the block's own that may use the block (events.c). */
struct stream_use {
  struct stream_use *next;
  openreg_event *event; /* recorded when the block is freed */
  struct block *block;
  int32_t stream;
};

struct block {
  _Alignas(64) openreg_block base;
  /* The neighbours in the segment, NULL at its ends. IMPORTED: the neighbours in `imports`. */
  struct block *prev, *next;
  struct segment *segment;
  enum block_state state;
  int32_t events; /* AWAITING_STREAMS: the number of events that are not known to be done */
  struct pool *pool;
  bool is_shared; /* exported to another process, or imported from one */
  union {
    struct block *left;    /* FREE: in its pool's tree */
    struct block *waiting; /* the next in a list: AWAITING_STREAMS until the stream is idle,
                            * AWAITING_IMPORTERS, CLOSING_IMPORT */
  };
  union {
    struct block *right;            /* FREE */
    struct stream_use *stream_uses; /* ALLOCATED and later */
  };
  uint64_t searches; /* FREE: pool.searches at the time when the block became free */
};

_Static_assert(offsetof(struct block, base) == 0, "an openreg_block is cast to its block");
_Static_assert(sizeof(struct block) == 128, "a block is two cache lines");

static inline struct block *block_of(openreg_block *base) {
  return (struct block *)base;
}
static inline char *block_address(const struct block *block) {
  return block->base.address;
}
static inline char *block_end(const struct block *block) {
  return block_address(block) + block->base.bytes;
}
static inline bool block_is_active(const struct block *block) {
  return block->state == BLOCK_ALLOCATED || block->state == BLOCK_AWAITING_STREAMS ||
         block->state == BLOCK_AWAITING_IMPORTERS;
}
/* Whether the block is only a part of its segment. */
static inline bool block_is_split(const struct block *block) {
  return block->prev || block->next;
}

/* ---- segments (segment.c, expandable.c) ------------------------------------------------------ */

struct segment {
  struct segment *below, *above; /* by address, among all segments of the device */
  char *address;
  size_t bytes;      /* expandable: the size of the address range */
  size_t page_bytes; /* expandable: the unit of mapping; 0 for other segments */
  struct block *first;
  struct pool *pool;
  uint64_t number; /* in the order in which segments were created */
  int32_t stream;
  bool is_raw;                     /* from openreg_device_malloc */
  openreg_custom_allocator custom; /* no functions: the segment came from the arena */
};

static inline bool block_is_expandable(const struct block *block) {
  return block->segment->page_bytes != 0;
}

static inline bool segment_is_custom(const struct segment *segment) {
  return segment->custom.allocate != NULL;
}

/* ---- pools (pool.c), and the order of their free blocks (tree.c) ----------------------------- */

struct private_pool;

struct pool {
  struct block *free;         /* a tree ordered by stream, size, age of the segment, address */
  int kind;                   /* OPENREG_POOL_SMALL or OPENREG_POOL_LARGE */
  struct private_pool *owner; /* NULL: memory pool 0 */
  uint64_t searches; /* counted while garbage collection is on; gives the age of free blocks */
};

/* The part of memory pool `mempool` on one device. */
struct private_pool {
  uint64_t mempool;
  struct pool pools[OPENREG_POOL_KINDS]; /* the first is unused */
  size_t segments;
  bool is_unsplit; /* OPENREG_MEMPOOL_NO_SPLIT */
  openreg_custom_allocator custom;
  struct private_pool *next;
};

static inline uint64_t pool_mempool(const struct pool *pool) {
  return pool->owner ? pool->owner->mempool : 0;
}

void openreg_tree_insert(struct block **tree, struct block *block);
void openreg_tree_remove(struct block **tree, struct block *block);
/* Returns the first block that has this stream and at least `bytes`, or a later stream. NULL if
 * there is none. */
struct block *openreg_tree_at_least(struct block *tree, int stream, size_t bytes);
/* Returns the last block before the one that openreg_tree_at_least returns, or NULL. */
struct block *openreg_tree_below(struct block *tree, int stream, size_t bytes);
/* Returns the next block in order, or the previous one; or NULL. */
struct block *openreg_tree_after(struct block *tree, const struct block *block);
struct block *openreg_tree_before(struct block *tree, const struct block *block);
/* Checks the order of the tree, and adds the number of its blocks to `count`. */
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

/* A request of the program, and the values that follow from it. */
struct request {
  size_t bytes;         /* as requested */
  size_t rounded_bytes; /* the size of the block */
  size_t segment_bytes; /* the size of a segment that is created for it */
  uint64_t mempool;
  struct pool *pool;
  int stream;
  bool is_expandable;  /* expandable segments are on */
  bool is_exact;       /* the block is split wherever the request ends */
  bool is_rejected;    /* stop trying (throw_on_cudamalloc_oom) */
  struct stack *stack; /* NULL unless OPENREG_DEBUG_MEMORY=1 */
};

size_t openreg_round_size(const openreg_memory_settings *settings, size_t bytes);
/* Fills in the rest of a request that has bytes, mempool and stream. Returns false and records an
 * error if the host has no memory. */
bool openreg_request_complete(struct allocator *allocator, struct request *request);
/* Return the part of a memory pool other than 0 on this device. `find` returns NULL if there is
 * none yet. `open` creates it, and returns NULL and records an error if the host has no memory. */
struct private_pool *openreg_private_pool_find(struct allocator *allocator, uint64_t mempool);
struct private_pool *openreg_private_pool_open(struct allocator *allocator, uint64_t mempool);
/* Takes the best fit out of its pool's tree. NULL if none fits. */
struct block *openreg_pool_take(struct allocator *allocator, const struct request *request);

#pragma GCC visibility pop
#endif
