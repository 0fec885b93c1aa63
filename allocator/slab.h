/* slab.h: where records come from: pages of the host, and slabs that cut records from them.
 *
 * Blocks, segments, uses of blocks and pinned blocks are such records. Callers hold the lock of
 * whoever's slab it is.
 */
#ifndef OPENREG_ALLOCATOR_SLAB_H
#define OPENREG_ALLOCATOR_SLAB_H

#include <assert.h>

#include "device/device.h"

#pragma GCC visibility push(hidden)

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
  void *first; /* a record that is not taken, which begins with the address of the next */
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

/* A record whose fields are those of its last use, but for what it begins with. */
static inline void *slab_take(struct slab *slab) {
  void *record = slab->first;
  assert(record);
  slab->first = *(void **)record;
  slab->available--;
  return record;
}
static inline void slab_put(struct slab *slab, void *record) {
  assert(slab->available < slab->made);
  *(void **)record = slab->first;
  slab->first = record;
  slab->available++;
}

#pragma GCC visibility pop
#endif
