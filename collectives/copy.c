/* copy.c: copying between arenas, tile by tile. */
#include "collectives/comm.h"

#include <string.h>

/* A copy checks for an abort of the communicator between two tiles. */
enum { TILE_BYTES = 64 << 10 };

bool openreg_copy_tiles(const openreg_comm *comm, void *destination, const void *source,
                        size_t bytes) {
  if (destination == source)
    return true;
  for (size_t done = 0; done < bytes; done += TILE_BYTES) {
    if (openreg_mapping_is_aborted(comm->mapping))
      return false;
    size_t length = bytes - done < TILE_BYTES ? bytes - done : TILE_BYTES;
    memcpy((unsigned char *)destination + done, (const unsigned char *)source + done, length);
  }
  return true;
}
