/* pages.c: host memory from the system. The allocator makes no other system calls, except in its
 * locks. */
#include "allocator/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static void *map(size_t bytes, int flags, const char *purpose) {
  void *pages =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (pages != MAP_FAILED)
    return pages;
  openreg_fail(OPENREG_SYSTEM, "openreg: out of host memory for %s: %zu bytes: %s", purpose, bytes,
               strerror(errno));
  return NULL;
}

void *openreg_pages_map(size_t bytes) {
  return map(bytes, MAP_NORESERVE, "the allocator's records");
}

void *openreg_pages_map_pinned(size_t bytes) {
  return map(bytes, 0, "a pinned block");
}

openreg_status openreg_pages_unmap(void *pages, size_t bytes) {
  if (munmap(pages, bytes) == 0)
    return OPENREG_OK;
  return openreg_fail(OPENREG_SYSTEM, "openreg: cannot return %zu bytes of host memory: %s", bytes,
                      strerror(errno));
}
