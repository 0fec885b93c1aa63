/* copy.c: copies between host and devices, and fills.
 *
 * Every byte is reached through kernel views, so that a copy between devices is one copy. A range
 * is host memory when it touches no arena at all; one that is partly in an arena is a mistake.
 */
#include "device/memory/arena.h"

#include <assert.h>
#include <string.h>

#include "device/memory/bulk.h"
#include "device/process/state.h"

/* A range as this process may reach it. */
typedef struct reachable {
  void *address;
  int device; /* -1: host memory */
} reachable;

static openreg_status reach(const void *address, size_t bytes, reachable *range) {
  int device;
  openreg_status status = openreg_arena_check_range(address, bytes, &device);
  if (status != OPENREG_OK)
    return status;
  range->device = device;
  range->address = device >= 0 ? openreg_kernel_view(address) : (void *)address;
  return OPENREG_OK;
}

static bool are_apart(const void *one, const void *other, size_t bytes) {
  uintptr_t distance =
      one < other ? (uintptr_t)other - (uintptr_t)one : (uintptr_t)one - (uintptr_t)other;
  return distance >= bytes;
}

openreg_status openreg_copy(void *destination, const void *source, size_t bytes) {
  openreg_status status = openreg_require_no_bad_fork();
  if (status != OPENREG_OK || bytes == 0)
    return status;
  if (destination == NULL || source == NULL)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: copying %zu bytes %s NULL", bytes,
                        destination == NULL ? "to" : "from");
  reachable to, from;
  status = reach(destination, bytes, &to);
  if (status == OPENREG_OK)
    status = reach(source, bytes, &from);
  if (status != OPENREG_OK)
    return status;
  bool apart = are_apart(to.address, from.address, bytes);
  assert(apart);
  (void)apart;
  if (bytes >= OPENREG_BULK_BYTES)
    openreg_bulk_copy(to.address, from.address, bytes);
  else
    memcpy(to.address, from.address, bytes);
  return OPENREG_OK;
}

openreg_status openreg_fill(void *destination, int value, size_t bytes) {
  openreg_status status = openreg_require_no_bad_fork();
  if (status != OPENREG_OK || bytes == 0)
    return status;
  if (destination == NULL)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: filling %zu bytes at NULL", bytes);
  reachable to;
  status = reach(destination, bytes, &to);
  if (status != OPENREG_OK)
    return status;
  if (to.device < 0)
    return openreg_fail(OPENREG_INVALID_ADDRESS, "openreg: %p is not in the memory of any device",
                        destination);
  if (bytes >= OPENREG_BULK_BYTES)
    openreg_bulk_fill(to.address, value, bytes);
  else
    memset(to.address, value, bytes);
  return OPENREG_OK;
}
