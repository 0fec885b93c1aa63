/* ledger.c: how much of each device is in use.
 *
 * One counter a device, changed without a lock:
 *
 *     0 <= taken[i] <= capacity of device i         at every moment
 *
 * Each has a cache line of its own, since devices are driven by different threads.
 */
#include "internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>

enum { CACHE_LINE_BYTES = 64 };

static struct counter {
  _Alignas(CACHE_LINE_BYTES) _Atomic uint64_t taken_bytes;
} counters[OPENREG_MAX_DEVICES];

_Static_assert(sizeof(struct counter) == CACHE_LINE_BYTES, "one cache line each");

static uint64_t capacity_of(int device) {
  size_t bytes;
  openreg_arena_kernel_base(device, &bytes);
  return bytes;
}

openreg_status openreg_ledger_take(int device, uint64_t bytes) {
  openreg_status status = openreg_require_ready(device);
  if (status != OPENREG_OK)
    return status;
  uint64_t capacity = capacity_of(device);
  uint64_t taken = atomic_load(&counters[device].taken_bytes);
  do {
    if (bytes > capacity - taken)
      return openreg_fail(OPENREG_OUT_OF_MEMORY,
                          "openreg: device %d is out of memory: %" PRIu64
                          " bytes were asked for, %" PRIu64 " of %" PRIu64 " are free",
                          device, bytes, capacity - taken, capacity);
  } while (!atomic_compare_exchange_weak(&counters[device].taken_bytes, &taken, taken + bytes));
  return OPENREG_OK;
}

void openreg_ledger_give(int device, uint64_t bytes) {
  assert(device >= 0 && device < OPENREG_MAX_DEVICES);
  uint64_t taken = atomic_fetch_sub(&counters[device].taken_bytes, bytes);
  assert(bytes <= taken);
  (void)taken;
}

openreg_status openreg_ledger_query(int device, uint64_t *free_bytes, uint64_t *total_bytes) {
  openreg_status status = openreg_require_ready(device);
  if (status != OPENREG_OK)
    return status;
  *total_bytes = capacity_of(device);
  *free_bytes = *total_bytes - atomic_load(&counters[device].taken_bytes);
  return OPENREG_OK;
}
