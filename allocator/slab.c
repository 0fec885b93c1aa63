/* slab.c: the records of blocks, segments and uses.
 *
 * Records are cut from chunks of pages and recycled last in, first out; a chunk is never given
 * back, so a stale pointer to a record still points to one. Callers ensure what an operation may
 * need before they change anything, which is why taking cannot fail.
 */
#include "allocator/internal.h"

enum { CHUNK_BYTES = 64 << 10 }; /* some 500 blocks: a system call is rare, waste is small */

bool openreg_slab_grow(struct slab *slab, size_t count) {
  while (slab->available < count) {
    char *chunk = openreg_pages_map(CHUNK_BYTES);
    if (!chunk)
      return false;
    for (size_t at = 0; at + slab->record_bytes <= CHUNK_BYTES; at += slab->record_bytes) {
      slab->made++;
      slab_put(slab, chunk + at);
    }
  }
  return true;
}
