#include "sanitizer/blocks.h"

#include "allocator/allocator.h"
#include "memory/observation/memory_observers.h"
#include "sanitizer/launches.h"
#include "sanitizer/call_sites.h"

namespace openreg {

namespace {

ToldOrder *told = nullptr; // set where only one thread runs, or before anything is observed
constinit thread_local uint64_t freed_at = 0;

// Memory of blocks that are laid over others that a device has no more.
void observe(const openreg_memory_event &event) {
  if (told == nullptr) {
    return;
  }
  auto *const layer = told->layer();
  switch (event.action) {
  case OPENREG_MEMORY_ALLOCATED: {
    const auto allocating = allocating_now();
    openreg_sanitizer_block block{};
    block.address = event.address;
    block.bytes = event.bytes;
    block.site = allocating.place;
    block.owner = ToldOrder::tag_of({static_cast<c10::DeviceIndex>(event.device), event.stream});
    // Without memory for it, nothing is said of the block.
    (void)openreg_sanitizer_alloc(layer, &block, !allocating.leaves_unwritten);
    break;
  }
  case OPENREG_MEMORY_FREE_REQUESTED:
    openreg_sanitizer_free(layer, event.address, freed_at);
    told->end_uses(event.address, {static_cast<c10::DeviceIndex>(event.device), event.stream});
    break;
  case OPENREG_MEMORY_SEGMENT_FREED:
  case OPENREG_MEMORY_SEGMENT_UNMAPPED:
    openreg_sanitizer_forget(layer, event.address, event.bytes);
    break;
  default:
    break;
  }
}

} // namespace

void note_free() {
  freed_at = place_here();
}

void watch_blocks(ToldOrder *order) {
  told = order;
  if (order != nullptr) {
    observe_memory(MemoryObserver::kSanitizer, &observe);
  }
}

} // namespace openreg
