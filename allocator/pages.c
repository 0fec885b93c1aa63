/* pages.c: where the allocator's own records come from, its only call to the host's system. */
#include "internal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

void *pages_map(size_t bytes) {
  void *pages =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages != MAP_FAILED)
    return pages;
  openreg_fail(OPENREG_SYSTEM, "openreg: no host memory for the allocator's records: %zu bytes: %s",
               bytes, strerror(errno));
  return NULL;
}
