/* slab.c: slabs of records for blocks, segments and stream uses.
 *
 * Records are cut from chunks of pages and reused last in, first out. A chunk is never released, so
 * a stale pointer to a record still points to a record. Callers ensure all records of an operation
 * before they change anything, so taking one cannot fail.
 */
#include "allocator/internal.h"

enum { CHUNK_BYTES = 64 << 10 }; /* about 500 blocks: system calls are rare and little is wasted */

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
