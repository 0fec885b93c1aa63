/* copy.c: copies between hosts and devices, and fills.
 *
 * All accesses go through kernel views, so a copy between devices is a single copy. A range that
 * touches no arena is host memory. A range that lies only partly in an arena is an error.
 */
#include "device/memory/arena.h"

#include <assert.h>
#include <string.h>

#include "device/memory/bulk.h"
#include "device/process/state.h"

/* A range, with an address that this process may access. */
typedef struct mapped_range {
  void *address;
  int device; /* -1: host memory */
} mapped_range;

static openreg_status resolve(const void *address, size_t bytes, mapped_range *range) {
  int device;
  openreg_status status = openreg_arena_check_range(address, bytes, &device);
  if (status != OPENREG_OK)
    return status;
  range->device = device;
  range->address = device >= 0 ? openreg_kernel_view(address) : (void *)address;
  return OPENREG_OK;
}

static bool are_disjoint(const void *one, const void *other, size_t bytes) {
  uintptr_t distance =
      one < other ? (uintptr_t)other - (uintptr_t)one : (uintptr_t)one - (uintptr_t)other;
  return distance >= bytes;
}

openreg_status openreg_copy(void *destination, const void *source, size_t bytes) {
  openreg_status status = openreg_require_no_bad_fork();
  if (status != OPENREG_OK || bytes == 0)
    return status;
  if (destination == NULL || source == NULL)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: cannot copy %zu bytes %s NULL", bytes,
                        destination == NULL ? "to" : "from");
  mapped_range to, from;
  status = resolve(destination, bytes, &to);
  if (status == OPENREG_OK)
    status = resolve(source, bytes, &from);
  if (status != OPENREG_OK)
    return status;
  bool disjoint = are_disjoint(to.address, from.address, bytes);
  assert(disjoint);
  (void)disjoint;
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
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: cannot fill %zu bytes at NULL", bytes);
  mapped_range to;
  status = resolve(destination, bytes, &to);
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
