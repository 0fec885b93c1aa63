/* extents.h: which blocks of memory there are, and were.
 *
 * An extent is a range of addresses: a live block, or what is left of one that was freed until all
 * of its addresses are other blocks'. Extents do not overlap. They stand in a treap by address (a
 * search tree that is also a heap by a number that is as good as random), and those that were
 * looked up last in a table, for a program uses the same blocks again and again.
 */
#ifndef OPENREG_SANITIZER_EXTENTS_H
#define OPENREG_SANITIZER_EXTENTS_H

#include "sanitizer/runs.h"

#pragma GCC visibility push(hidden)

/* A block of which only records are left. */
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

/* An access that is remembered: of a contiguous box with `shape` NULL. */
struct record {
  uint64_t low, high;
  struct shape *shape;
  struct origin *origin; /* NULL: to the extent's own block, which lives */
  uint64_t time, site, tag, actor;
  uint32_t slot;
  uint8_t mode, actor_kind;
};

_Static_assert(sizeof(struct record) == 72, "there is one or more of these for each block");

enum {
  RECORDS_INSIDE = 2,
  RECENT_EXTENTS = 4096, /* a power of two */
  PLACE_BITS = 8
};

struct extent {
  uint64_t begin, end; /* first what each access looks at */
  uint32_t count, capacity;
  struct record *records; /* from the oldest on: `inside`, or memory of its own */
  bool is_live;
  uint32_t priority;
  struct extent *left, *right;
  struct runs unwritten;
  struct record inside[RECORDS_INSIDE];
  struct extent *older, *newer;  /* of those that are freed */
  openreg_sanitizer_block block; /* the last that lived here */
};

struct extents {
  struct extent *root;
  uint64_t live, freed;
  struct extent *oldest, *newest; /* of those that are freed */
  struct extent *recent[RECENT_EXTENTS];
};

/* The first extent that ends behind an address: the one in which it lies, or the next; NULL: none.
 */
struct extent *openreg_extents_find(const struct extents *extents, uint64_t address);

void openreg_extents_insert(struct extents *extents, struct extent *extent);
void openreg_extents_remove(struct extents *extents, struct extent *extent);

/* Takes an extent out of the table of those looked up last: before it loses addresses. */
void openreg_extents_unlearn(struct extents *extents, const struct extent *extent);

/* An extent that lives and is freed, or the other way round. */
void openreg_extents_set_live(struct extents *extents, struct extent *extent, bool is_live);

/* Addresses with the same upper bits have one place in the table. */
static inline struct extent **openreg_extents_place(struct extents *extents, uint64_t address) {
  uint64_t mixed = (address >> PLACE_BITS) * UINT64_C(0x9e3779b97f4a7c15);
  return &extents->recent[mixed >> 52];
}

/* The live extent in which an address lies; NULL: none. */
static inline struct extent *openreg_extents_live_at(struct extents *extents, uint64_t address) {
  struct extent **place = openreg_extents_place(extents, address), *extent = *place;
  if (extent == NULL || address - extent->begin >= extent->end - extent->begin) {
    extent = openreg_extents_find(extents, address);
    if (extent == NULL || extent->begin > address)
      return NULL;
    *place = extent;
  }
  return extent->is_live ? extent : NULL;
}

#pragma GCC visibility pop
#endif
