/* observer.c: telling one function of the program what happens to memory.
 *
 * The observer is looked up when something happens, under the device's lock. Exchanging it takes
 * every device's lock once, so that the one before is not being called any more when that is done.
 */
#include "allocator/internal.h"

_Atomic(openreg_memory_observer) openreg_installed_observer;

static void take_each_lock_once(void) {
  for (int device = 0; device < OPENREG_MAX_DEVICES; device++) {
    struct allocator *allocator = openreg_allocator_ready(device);
    if (!allocator)
      continue;
    allocator_lock(allocator);
    allocator_unlock(allocator);
  }
}

void openreg_memory_observe(openreg_memory_observer observer) {
  if (openreg_in_bad_fork())
    return;
  take_each_lock_once(); /* what happened before is accounted for without an observer */
  atomic_store_explicit(&openreg_installed_observer, observer, memory_order_release);
  take_each_lock_once();
}

void openreg_observe_memory(const openreg_memory_event *event) {
  openreg_memory_observer observer =
      atomic_load_explicit(&openreg_installed_observer, memory_order_acquire);
  if (observer)
    observer(event);
}

void openreg_observe_block(openreg_memory_action action, const struct block *block) {
  openreg_observe_memory(&(openreg_memory_event){.action = action,
                                                 .device = block->shown.device,
                                                 .stream = block->shown.stream,
                                                 .address = (uintptr_t)block->shown.address,
                                                 .bytes = block->shown.requested_bytes,
                                                 .mempool = pool_mempool(block->pool)});
}

void openreg_observe_segment(openreg_memory_action action, const struct allocator *allocator,
                             const struct segment *segment, const char *address, size_t bytes) {
  openreg_observe_memory(&(openreg_memory_event){.action = action,
                                                 .device = allocator->device,
                                                 .stream = segment->stream,
                                                 .address = (uintptr_t)address,
                                                 .bytes = bytes,
                                                 .mempool = pool_mempool(segment->pool)});
}
