#include "devices.h"

#include <unistd.h>

size_t page_bytes(void) {
  return (size_t)sysconf(_SC_PAGESIZE);
}

char *base_of(int device) {
  void *base;
  size_t bytes;
  REQUIRE_OK(openreg_arena_get(device, &base, &bytes));
  return base;
}

size_t arena_bytes(void) {
  void *base;
  size_t bytes;
  REQUIRE_OK(openreg_arena_get(0, &base, &bytes));
  return bytes;
}

uint64_t free_on(int device) {
  uint64_t free_bytes, total_bytes;
  REQUIRE_OK(openreg_ledger_query(device, &free_bytes, &total_bytes));
  REQUIRE(total_bytes == 64 * MIB);
  return free_bytes;
}
