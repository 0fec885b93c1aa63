/* Processes that export and import memory. See peers.h. */
#include "peers.h"

#include <sched.h>

void fill_and_export(size_t bytes, int count, const struct range ranges[]) {
  char *base = base_of(1);
  REQUIRE_OK(openreg_ledger_reserve(1, bytes));
  REQUIRE_OK(openreg_fill(base, PATTERN, bytes));
  for (int i = 0; i < count; i++)
    export_memory(base + ranges[i].offset, ranges[i].bytes, &board->handles[i]);
  report(0);
  await_cue();
}

void export_three(void) {
  fill_and_export(8 * MIB, 3,
                  (struct range[]){{0, 512}, {512, PAGE}, {GRANULE - PAGE, 2 * GRANULE}});
}

void import_second_and_stay(void) {
  await_cue();
  open_memory(&board->handles[1]);
  report(0);
  await_cue();
}

uint64_t used_on(int device) {
  uint64_t free_bytes, total_bytes;
  REQUIRE_OK(openreg_ledger_query(device, &free_bytes, &total_bytes));
  return total_bytes - free_bytes;
}

void await_used_on(int device, uint64_t bytes) {
  while (used_on(device) != bytes)
    sched_yield();
}
