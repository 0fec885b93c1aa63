/* shadow_cache.h: the shadow blocks, which describe current and former blocks of memory.
 *
 * A shadow block covers a range of addresses: a live block, or what is left of a freed one until
 * other blocks have taken all of its addresses. Shadow blocks do not overlap. A treap orders them
 * by address (a search tree that is also a heap by pseudo-random priorities). A direct-mapped cache
 * holds those that were looked up last, because a program uses the same blocks again and again.
 */
#ifndef OPENREG_SANITIZER_EXTENTS_H
#define OPENREG_SANITIZER_EXTENTS_H

#include "sanitizer/runs.h"

#pragma GCC visibility push(hidden)

/* A freed block to which only records refer. */
struct origin {
  openreg_sanitizer_block block;
  uint64_t references;
};

/* The dimensions of a strided record, shared by its copies. */
struct shape {
  uint32_t references;
  int dims;
  uint64_t run;
  bool is_nested;
  struct dim dim[];
};

/* A remembered access. `shape` is NULL if its region is contiguous. */
struct record {
  uint64_t low, high;
  struct shape *shape;
  struct origin *origin; /* the freed block it was to; NULL: the shadow block's own, live block */
  uint64_t epoch, call_site, tag, thread;
  uint32_t slot;
  uint8_t mode, thread_kind;
};

_Static_assert(sizeof(struct record) == 72, "there is one or more of these for each block");

enum {
  RECORDS_INSIDE = 2,
  RECENT_SLOTS = 4096, /* a power of two */
  SLOT_SHIFT = 8
};

struct shadow_block {
  uint64_t begin, end; /* first, because each access reads them */
  uint32_t count, capacity;
  struct record *records; /* oldest first: `inside`, or memory of its own */
  bool is_live;
  uint32_t priority;
  struct shadow_block *left, *right;
  struct runs unwritten;
  struct record inside[RECORDS_INSIDE];
  struct shadow_block *older, *newer; /* neighbors in the list of freed blocks */
  openreg_sanitizer_block block;      /* the last block that lived here */
};

struct shadow_cache {
  struct shadow_block *root;
  uint64_t live, freed;
  struct shadow_block *oldest, *newest; /* of the freed blocks */
  struct shadow_block *recent[RECENT_SLOTS];
};

/* Returns the first shadow block that ends after an address: the one that contains the address, or
 * the next one. NULL: there is none. */
struct shadow_block *openreg_shadow_cache_find(const struct shadow_cache *cache, uint64_t address);

void openreg_shadow_cache_insert(struct shadow_cache *cache, struct shadow_block *shadow);
void openreg_shadow_cache_remove(struct shadow_cache *cache, struct shadow_block *shadow);

/* Removes a shadow block from the cache. Call it before the block loses addresses. */
void openreg_shadow_cache_evict(struct shadow_cache *cache, const struct shadow_block *shadow);

/* Changes a live block to a freed one, or the other way round. */
void openreg_shadow_cache_set_live(struct shadow_cache *cache, struct shadow_block *shadow,
                                   bool is_live);

/* Returns the cache slot of an address. Addresses with the same upper bits share a slot. */
static inline struct shadow_block **openreg_shadow_cache_slot(struct shadow_cache *cache,
                                                              uint64_t address) {
  uint64_t mixed = (address >> SLOT_SHIFT) * UINT64_C(0x9e3779b97f4a7c15);
  return &cache->recent[mixed >> 52];
}

/* Returns the live shadow block that contains an address; NULL: there is none. */
static inline struct shadow_block *openreg_shadow_cache_find_live(struct shadow_cache *cache,
                                                                  uint64_t address) {
  struct shadow_block **place = openreg_shadow_cache_slot(cache, address), *shadow = *place;
  if (shadow == NULL || address - shadow->begin >= shadow->end - shadow->begin) {
    shadow = openreg_shadow_cache_find(cache, address);
    if (shadow == NULL || shadow->begin > address)
      return NULL;
    *place = shadow;
  }
  return shadow->is_live ? shadow : NULL;
}

#pragma GCC visibility pop
#endif
