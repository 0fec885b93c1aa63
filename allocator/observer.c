/* observer.c: reports what happens to memory to the observers.
 *
 * Events are reported under the device's lock. add and remove take the lock of every device once,
 * so an observer that was removed is not running any more when remove returns. Without observers an
 * operation costs one predicted branch, on openreg_memory_has_observers.
 */
#include "allocator/internal.h"

#include <pthread.h>

atomic_bool openreg_memory_has_observers;

static _Atomic(openreg_memory_observer) observers[OPENREG_MEMORY_OBSERVERS];
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER; /* taken before a device's lock */

static void pass_through_all_locks(void) {
  for (int device = 0; device < OPENREG_MAX_DEVICES; device++) {
    struct allocator *allocator = openreg_allocator_ready(device);
    if (!allocator)
      continue;
    allocator_lock(allocator);
    allocator_unlock(allocator);
  }
}

/* The slot that holds `observer`, or NULL. */
static _Atomic(openreg_memory_observer) *find_slot(openreg_memory_observer observer) {
  for (int i = 0; i < OPENREG_MEMORY_OBSERVERS; i++)
    if (atomic_load_explicit(&observers[i], memory_order_relaxed) == observer)
      return &observers[i];
  return NULL;
}

static bool any_observer(void) {
  for (int i = 0; i < OPENREG_MEMORY_OBSERVERS; i++)
    if (atomic_load_explicit(&observers[i], memory_order_relaxed))
      return true;
  return false;
}

openreg_status openreg_memory_add_observer(openreg_memory_observer observer) {
  if (openreg_in_bad_fork())
    return openreg_require_no_bad_fork();
  if (!observer)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_memory_add_observer: observer is NULL");
  openreg_status status = OPENREG_OK;
  pthread_mutex_lock(&changing);
  pass_through_all_locks(); /* flushes earlier operations, which nobody observed */
  _Atomic(openreg_memory_observer) *slot = find_slot(observer);
  slot = slot ? slot : find_slot(NULL);
  if (slot) {
    atomic_store_explicit(slot, observer, memory_order_release);
    atomic_store_explicit(&openreg_memory_has_observers, true, memory_order_release);
    pass_through_all_locks();
  } else {
    status = openreg_fail(OPENREG_NOT_PERMITTED,
                          "openreg_memory_add_observer: there are %d observers already: remove one "
                          "first",
                          OPENREG_MEMORY_OBSERVERS);
  }
  pthread_mutex_unlock(&changing);
  return status;
}

void openreg_memory_remove_observer(openreg_memory_observer observer) {
  if (openreg_in_bad_fork() || !observer)
    return;
  pthread_mutex_lock(&changing);
  _Atomic(openreg_memory_observer) *slot = find_slot(observer);
  if (slot) {
    atomic_store_explicit(slot, NULL, memory_order_release);
    atomic_store_explicit(&openreg_memory_has_observers, any_observer(), memory_order_release);
    pass_through_all_locks();
  }
  pthread_mutex_unlock(&changing);
}

void openreg_observe_memory(const openreg_memory_event *event) {
  for (int i = 0; i < OPENREG_MEMORY_OBSERVERS; i++) {
    openreg_memory_observer observer = atomic_load_explicit(&observers[i], memory_order_acquire);
    if (observer)
      observer(event);
  }
}

void openreg_observe_block(openreg_memory_action action, const struct block *block) {
  openreg_observe_memory(&(openreg_memory_event){.action = action,
                                                 .device = block->base.device,
                                                 .stream = block->base.stream,
                                                 .address = (uintptr_t)block->base.address,
                                                 .bytes = block->base.requested_bytes,
                                                 .block_bytes = block->base.bytes,
                                                 .mempool = pool_mempool(block->pool)});
}

void openreg_observe_segment(openreg_memory_action action, const struct allocator *allocator,
                             const struct segment *segment, const char *address, size_t bytes) {
  openreg_observe_memory(&(openreg_memory_event){.action = action,
                                                 .device = allocator->device,
                                                 .stream = segment->stream,
                                                 .address = (uintptr_t)address,
                                                 .bytes = bytes,
                                                 .block_bytes = bytes,
                                                 .mempool = pool_mempool(segment->pool)});
}
