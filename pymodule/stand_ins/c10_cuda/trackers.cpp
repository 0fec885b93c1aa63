#include "stand_ins/c10_cuda/trackers.h"

#include <c10/util/ApproximateClock.h>

#include <mutex>
#include <utility>
#include <vector>

#include "allocator/allocator.h"
#include "bridge/core/status.h"

namespace openreg {

namespace {

using c10::CachingDeviceAllocator::AllocatorTraceTracker;
using c10::CachingDeviceAllocator::TraceEntry;

struct Trackers {
  std::mutex mutex;
  std::vector<AllocatorTraceTracker> all;
};

Trackers &trackers() {
  static auto *const instance = new Trackers();
  return *instance;
}

TraceEntry::Action to_action(openreg_memory_action action) {
  switch (action) {
  case OPENREG_MEMORY_ALLOCATED:
    return TraceEntry::ALLOC;
  case OPENREG_MEMORY_FREE_REQUESTED:
    return TraceEntry::FREE_REQUESTED;
  case OPENREG_MEMORY_FREE_COMPLETED:
    return TraceEntry::FREE_COMPLETED;
  case OPENREG_MEMORY_SEGMENT_ALLOCATED:
    return TraceEntry::SEGMENT_ALLOC;
  case OPENREG_MEMORY_SEGMENT_FREED:
    return TraceEntry::SEGMENT_FREE;
  case OPENREG_MEMORY_SEGMENT_MAPPED:
    return TraceEntry::SEGMENT_MAP;
  case OPENREG_MEMORY_SEGMENT_UNMAPPED:
    return TraceEntry::SEGMENT_UNMAP;
  case OPENREG_MEMORY_EXHAUSTED:
    break;
  }
  return TraceEntry::OOM;
}

void report(const openreg_memory_event *event) {
  const TraceEntry entry(
      to_action(event->action), static_cast<c10::DeviceIndex>(event->device), event->address,
      event->bytes,
      reinterpret_cast<void *>(openreg_stream_make_handle(event->device, event->stream)),
      {0, event->mempool}, c10::getApproximateTime());
  auto &known = trackers();
  const std::lock_guard lock(known.mutex);
  for (const auto &tracker : known.all) {
    tracker(entry);
  }
}

} // namespace

void add_tracker(AllocatorTraceTracker tracker) {
  check(openreg_memory_add_observer(&report));
  auto &known = trackers();
  const std::lock_guard lock(known.mutex);
  known.all.push_back(std::move(tracker));
}

} // namespace openreg
