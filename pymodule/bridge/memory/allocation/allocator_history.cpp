#include "memory/allocation/allocator_history.h"

#include <utility>

#include "memory/allocation/out_of_memory.h"
#include "memory/allocation/pluggable_allocator.h"
#include "memory/observation/memory_history.h"
#include "streams/handle.h"

namespace openreg {

namespace {

using c10::CachingDeviceAllocator::TraceEntry;

// PyTorch's enumeration has no annotations.
bool has_action(const HistoryEvent &event) {
  return event.action < HistoryEvent::kAnnotated;
}

TraceEntry::Action action_of(const HistoryEvent &event) {
  switch (event.action) {
  case HistoryEvent::kExhausted:
    return TraceEntry::OOM;
  case HistoryEvent::kSnapshot:
    return TraceEntry::SNAPSHOT;
  default:
    return static_cast<TraceEntry::Action>(event.action);
  }
}

static_assert(static_cast<int>(HistoryEvent::kAllocated) == TraceEntry::ALLOC &&
              static_cast<int>(HistoryEvent::kFreeRequested) == TraceEntry::FREE_REQUESTED &&
              static_cast<int>(HistoryEvent::kFreeCompleted) == TraceEntry::FREE_COMPLETED &&
              static_cast<int>(HistoryEvent::kSegmentAllocated) == TraceEntry::SEGMENT_ALLOC &&
              static_cast<int>(HistoryEvent::kSegmentFreed) == TraceEntry::SEGMENT_FREE &&
              static_cast<int>(HistoryEvent::kSegmentMapped) == TraceEntry::SEGMENT_MAP &&
              static_cast<int>(HistoryEvent::kSegmentUnmapped) == TraceEntry::SEGMENT_UNMAP);

} // namespace

void RecordedHistory::record_history(const Options &options) {
  require_own_allocator("recordHistory");
  record_memory_history({.enabled = options.enabled,
                         .stacks = static_cast<StackPolicy>(options.stacks),
                         .cpp_frames = options.cpp_frames,
                         .gather = options.gather,
                         .max_entries = options.max_entries,
                         .clear = options.clear,
                         .compile_context = options.compile_context,
                         .annotations_of_all_threads = options.annotations_of_all_threads,
                         .skipped_actions = options.skipped_actions});
}

bool RecordedHistory::is_history_on() const {
  return is_recording.load();
}

std::vector<TraceEntry> RecordedHistory::history_of(int device) const {
  std::vector<TraceEntry> entries;
  for (const auto &event : openreg::history_of(device, /*with_entries=*/true).entries) {
    if (!has_action(event)) {
      continue;
    }
    TraceEntry entry(action_of(event), static_cast<c10::DeviceIndex>(device), event.address,
                     event.bytes, reinterpret_cast<void *>(handle_of_stream(device, event.stream)),
                     {0, event.mempool}, 0, event.context, event.compile_context, event.metadata);
    entry.time_.t_ = event.time_us;
    entries.push_back(std::move(entry));
  }
  return entries;
}

void RecordedHistory::note_snapshot(int device, size_t active_bytes, uint64_t mempool) {
  record_snapshot(device, active_bytes, mempool);
}

AllocatorHistory::Context RecordedHistory::block_context(int device, uintptr_t address) const {
  return context_of(device, address);
}

void RecordedHistory::set_metadata(const std::string &metadata) {
  set_memory_metadata(metadata);
}

std::string RecordedHistory::metadata() const {
  return memory_metadata();
}

void RecordedHistory::attach_observer(
    std::function<void(int64_t, size_t, size_t, size_t)> observer) {
  attach_out_of_memory_observer(
      [observer = std::move(observer)](int64_t device, int64_t asked, int64_t most, int64_t free) {
        observer(device, static_cast<size_t>(asked), static_cast<size_t>(most),
                 static_cast<size_t>(free));
      });
}

} // namespace openreg
