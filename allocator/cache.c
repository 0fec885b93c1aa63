/* cache.c: what a program asks of cached memory: to be given back, and to be no more than a
 * fraction of the device. */
#include "allocator/internal.h"

openreg_status openreg_cache_empty(int device) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_peek(device, &allocator);
  if (status != OPENREG_OK || !allocator)
    return status;
  allocator_lock(allocator);
  status = openreg_allocator_empty(allocator, NULL);
  allocator_unlock(allocator);
  return status;
}

openreg_status openreg_memory_set_fraction(int device, double fraction) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_open(device, &allocator);
  if (status != OPENREG_OK)
    return status;
  if (!(fraction >= 0 && fraction <= 1))
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg_memory_set_fraction: fraction %g: expected 0 to 1", fraction);
  allocator_lock(allocator);
  allocator->fraction = fraction;
  allocator->allowed_bytes = (size_t)(fraction * (double)allocator->capacity);
  allocator_unlock(allocator);
  return OPENREG_OK;
}

openreg_status openreg_memory_get_fraction(int device, double *fraction) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_peek(device, &allocator);
  if (status != OPENREG_OK)
    return status;
  if (!fraction)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_memory_get_fraction: fraction is NULL");
  *fraction = 1;
  if (allocator) {
    allocator_lock(allocator);
    *fraction = allocator->fraction;
    allocator_unlock(allocator);
  }
  return OPENREG_OK;
}
