#include "sanitizer/blocks.h"

#include "allocator/allocator.h"
#include "core/status.h"
#include "sanitizer/call_sites.h"
#include "sanitizer/calls.h"
#include "sanitizer/session.h"

namespace openreg {

namespace {

constinit thread_local uint64_t free_call_site = 0;

void report(const openreg_memory_event *event) {
  auto *const session = SanitizerSession::active();
  if (session == nullptr) {
    return;
  }
  const StreamKey stream{static_cast<c10::DeviceIndex>(event->device), event->stream};
  switch (event->action) {
  case OPENREG_MEMORY_ALLOCATED: {
    const auto context = current_allocation();
    openreg_sanitizer_block block{};
    block.address = event->address;
    block.bytes = event->bytes;
    block.call_site = context.call_site;
    block.owner = SanitizerSession::tag_of(stream);
    // If this fails for lack of memory, the sanitizer ignores the block.
    (void)openreg_sanitizer_alloc(session->sanitizer(), &block, !context.leaves_uninitialized);
    break;
  }
  case OPENREG_MEMORY_FREE_REQUESTED:
    openreg_sanitizer_free(session->sanitizer(), event->address, free_call_site);
    session->end_uses(event->address, stream);
    break;
  case OPENREG_MEMORY_SEGMENT_FREED:
  case OPENREG_MEMORY_SEGMENT_UNMAPPED:
    openreg_sanitizer_forget(session->sanitizer(), event->address, event->bytes);
    break;
  default:
    break;
  }
}

} // namespace

void set_free_call_site() {
  free_call_site = current_call_site();
}

void observe_blocks(bool observe) {
  if (openreg_in_bad_fork()) { // no memory to observe
    return;
  }
  if (observe) {
    check(openreg_memory_add_observer(&report));
  } else {
    openreg_memory_remove_observer(&report);
  }
}

} // namespace openreg
