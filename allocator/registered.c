/* registered.c: host memory of the program that counts as pinned, because the program registered it
 * (cudaHostRegister) or got it from the CUDA runtime (cudaHostAlloc).
 *
 * One array holds the ranges in address order. They never overlap, so a binary search finds the
 * range that contains an address. The count is read without the lock: in most programs it is 0, and
 * then the question whether memory is registered costs one load.
 *
 * As in pinned.c, fork takes the lock, and a child has its own copy of everything.
 */
#include "allocator/allocator.h"
#include "allocator/lock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 16 };

static struct {
  struct lock lock;
  openreg_host_range *ranges;
  size_t room;
  atomic_size_t count;
} registered;

/* ---- the lock -------------------------------------------------------------------------------- */

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static int fork_error;

static void before_fork(void) {
  lock_take(&registered.lock);
}

static void after_fork(void) {
  lock_give(&registered.lock);
}

static void register_fork_handler(void) {
  fork_error = openreg_lock_register_fork_handlers(before_fork, after_fork);
}

static void enter(void) {
  pthread_once(&fork_once, register_fork_handler);
  lock_take(&registered.lock);
}

static void leave(void) {
  lock_give(&registered.lock);
}

/* ---- the array ------------------------------------------------------------------------------- */

static size_t count(void) {
  return atomic_load_explicit(&registered.count, memory_order_relaxed);
}

static void set_count(size_t count) {
  atomic_store_explicit(&registered.count, count, memory_order_relaxed);
}

static char *end_of(const openreg_host_range *range) {
  return (char *)range->address + range->bytes;
}

/* Returns the index of the first range that ends after `address`. */
static size_t find(const void *address) {
  size_t low = 0, high = count();
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (end_of(&registered.ranges[middle]) <= (const char *)address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static bool ensure_room(void) {
  if (count() < registered.room)
    return true;
  size_t room = registered.room > 0 ? 2 * registered.room : FIRST_ROOM;
  openreg_host_range *ranges = realloc(registered.ranges, room * sizeof *ranges);
  if (ranges == NULL)
    return false;
  registered.ranges = ranges;
  registered.room = room;
  return true;
}

static openreg_status insert(const openreg_host_range *range) {
  size_t at = find(range->address);
  if (at < count() && (char *)registered.ranges[at].address < end_of(range))
    return openreg_fail(OPENREG_NOT_PERMITTED,
                        "openreg: a part of the %zu bytes at %p is registered already",
                        range->bytes, range->address);
  if (!ensure_room())
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory to register memory");
  openreg_host_range *place = registered.ranges + at;
  memmove(place + 1, place, (count() - at) * sizeof *place);
  *place = *range;
  set_count(count() + 1);
  return OPENREG_OK;
}

/* ---- public ---------------------------------------------------------------------------------- */

openreg_status openreg_host_register(const openreg_host_range *range) {
  if (range == NULL || range->address == NULL || range->bytes == 0)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg_host_register: expected an address and 1 byte or more");
  if (range->bytes > UINTPTR_MAX - (uintptr_t)range->address)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg_host_register: %zu bytes at %p exceed the address space",
                        range->bytes, range->address);
  enter();
  openreg_status status =
      fork_error == 0 ? insert(range)
                      : openreg_fail(OPENREG_SYSTEM, "openreg: cannot register a fork handler: %s",
                                     strerror(fork_error));
  leave();
  return status;
}

openreg_status openreg_host_unregister(void *address) {
  enter();
  size_t at = find(address);
  bool is_found = at < count() && registered.ranges[at].address == address;
  if (is_found) {
    openreg_host_range *place = registered.ranges + at;
    memmove(place, place + 1, (count() - at - 1) * sizeof *place);
    set_count(count() - 1);
  }
  leave();
  return is_found ? OPENREG_OK
                  : openreg_fail(OPENREG_INVALID_ARGUMENT,
                                 "openreg: no registered memory starts at %p", address);
}

bool openreg_host_find(const void *address, openreg_host_range *range) {
  if (count() == 0)
    return false;
  enter();
  size_t at = find(address);
  bool is_found =
      at < count() && (const char *)registered.ranges[at].address <= (const char *)address;
  if (is_found)
    *range = registered.ranges[at];
  leave();
  return is_found;
}
