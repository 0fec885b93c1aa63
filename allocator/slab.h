/* slab.h: host pages, and slabs that divide them into records.
 *
 * Blocks, segments, stream uses and pinned blocks are such records. Callers hold the lock of the
 * slab's owner.
 */
#ifndef OPENREG_ALLOCATOR_SLAB_H
#define OPENREG_ALLOCATOR_SLAB_H

#include <assert.h>

#include "device/device.h"

#pragma GCC visibility push(hidden)

/* ---- host memory (pages.c) ------------------------------------------------------------------- */

/* Returns zeroed memory for records. Only pages that are touched count, and they are never
 * returned. NULL and a recorded error if the host has no memory. */
void *openreg_pages_map(size_t bytes);
/* The same for memory of the program. The system refuses it if there is plainly not enough. It is
 * private to the process, so a forked process has its own copy. */
void *openreg_pages_map_pinned(size_t bytes);
/* Returns whole pages to the system. Errors: SYSTEM. */
openreg_status openreg_pages_unmap(void *pages, size_t bytes);

/* ---- slabs (slab.c) -------------------------------------------------------------------------- */

struct slab {
  void *first; /* the list of unused records; each begins with the address of the next */
  size_t record_bytes;
  size_t available, made;
};

/* Makes at least `count` records available. Returns false if the host has no memory. */
bool openreg_slab_grow(struct slab *slab, size_t count);
/* Ensures that the next `count` takes succeed, so that an operation cannot fail half-way. */
static inline bool slab_ensure(struct slab *slab, size_t count) {
  return slab->available >= count || openreg_slab_grow(slab, count);
}
static inline size_t slab_taken(const struct slab *slab) {
  return slab->made - slab->available;
}

/* Takes a record. Its fields have the values of its last use, except the first 8 bytes. */
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
