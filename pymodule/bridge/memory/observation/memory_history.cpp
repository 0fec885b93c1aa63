#include "memory/observation/memory_history.h"

#include <ATen/record_function.h>
#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <algorithm>
#include <bitset>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "memory/observation/memory_observers.h"
#include "memory/allocation/pluggable_allocator.h"

namespace openreg {

namespace {

constexpr int64_t kNsPerUs = 1000;

constexpr const char *kActionNames[HistoryEntry::kActions] = {
    "alloc",        "free_requested", "free_completed", "segment_alloc",
    "segment_free", "segment_map",    "segment_unmap",  "oom",
    "snapshot",
};

constexpr const char *kCompiledRegion = "Torch-Compiled Region"; // how Dynamo calls it
constexpr const char *kNotCompiled = "N/A";

// What this thread says of its allocations. Made on first use, and kept as long as the process: a
// thread that ends may still free memory, and room for thread-local objects is scarce in a library
// that is loaded late.
struct Remarks {
  std::vector<std::string> compile_contexts;
  std::string metadata;
};
constinit thread_local Remarks *own_remarks = nullptr;

Remarks &remarks() {
  if (own_remarks == nullptr) {
    own_remarks = new Remarks();
  }
  return *own_remarks;
}

int64_t now_us() {
  return c10::getTime() / kNsPerUs;
}

// The newest entries.
class Ring {
public:
  void set_room(size_t room) { room_ = std::max<size_t>(room, 1); }

  // Puts the contexts of the entries that had to go into `gone`.
  void push(HistoryEntry entry, std::vector<Context> &gone) {
    for (; entries_.size() >= room_; entries_.pop_front()) {
      gone.push_back(std::move(entries_.front().context));
    }
    entries_.push_back(std::move(entry));
  }

  std::vector<HistoryEntry> copy() const {
    const auto kept = static_cast<std::ptrdiff_t>(std::min(entries_.size(), room_));
    return {entries_.end() - kept, entries_.end()};
  }

private:
  std::deque<HistoryEntry> entries_; // more than there is room for, when that was made less
  size_t room_ = 1;
};

} // namespace

// Its lock is the last that any thread takes: nothing is called that takes another, and stacks,
// whose destructors do, are only moved aside, into `gone_`, and destroyed without it.
class Recorder {
public:
  static Recorder &instance() {
    static auto *const recorder = new Recorder(); // threads may outlive static objects
    return *recorder;
  }

  static void observe(const openreg_memory_event &event) { instance().add(event); }

  void set(const HistoryOptions &options) {
    const auto skipped = parse(options.skipped_actions);
    if (!options.enabled) {
      is_recording.store(false);
      observe_memory(MemoryObserver::kHistory, nullptr);
    }
    const auto old = std::make_unique<Devices>(); // destroyed without the lock
    {
      const std::lock_guard guard(mutex_);
      for (size_t device = 0; device < devices_.size(); ++device) {
        if (!options.enabled) {
          std::swap((*old)[device], devices_[device]);
        } else if (options.clear) {
          std::swap((*old)[device].ring, devices_[device].ring);
        }
        devices_[device].ring.set_room(options.max_entries);
      }
      if (!options.enabled || options.clear) {
        annotations_.clear();
      }
      max_entries_ = options.max_entries;
      skipped_ = skipped;
    }
    keep_.store(options.enabled ? options.stacks : KeepStacks::kNever);
    cpp_frames_.store(options.cpp_frames);
    if (options.enabled) {
      observe_memory(MemoryObserver::kHistory, &observe);
      is_recording.store(true);
    }
  }

  Context gather(RecordedCall::Kind kind) const {
    const auto least = kind == RecordedCall::kAllocate ? KeepStacks::kOfHeld : KeepStacks::kOfFrees;
    if (keep_.load(std::memory_order_relaxed) < least) {
      return nullptr;
    }
    return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, cpp_frames_.load());
  }

  void drop_gone() {
    std::vector<Context> gone;
    const std::lock_guard guard(mutex_);
    std::swap(gone, gone_); // destroyed after the guard, for it is declared before
  }

  void add_snapshot(int device, size_t active_bytes, uint64_t mempool) {
    const std::lock_guard guard(mutex_);
    if (is_recording.load(std::memory_order_relaxed)) {
      push(device, {HistoryEntry::kSnapshot, 0, 0, active_bytes, mempool, now_us(), nullptr,
                    compile_context(), metadata()});
    }
  }

  void annotate(const char *name, const char *stage) {
    const std::lock_guard guard(mutex_);
    if (annotations_.size() >= max_entries_) {
      annotations_.pop_front();
    }
    annotations_.push_back({openreg_device_current(), now_us(), name, stage});
  }

  DeviceHistory copy(int device, bool with_entries) {
    DeviceHistory history;
    const std::lock_guard guard(mutex_);
    const auto &from = devices_[static_cast<size_t>(device)];
    if (with_entries) {
      history.entries = from.ring.copy();
    }
    for (const auto &[address, held] : from.blocks) {
      history.blocks.emplace(address, held);
    }
    history.ranges.insert(from.ranges.begin(), from.ranges.end());
    return history;
  }

  std::vector<Annotation> copy_annotations() {
    const std::lock_guard guard(mutex_);
    return {annotations_.begin(), annotations_.end()};
  }

  Context find(int device, uintptr_t address) {
    const std::lock_guard guard(mutex_);
    const auto &blocks = devices_[static_cast<size_t>(device)].blocks;
    const auto held = blocks.find(address);
    return held == blocks.end() ? nullptr : held->second;
  }

private:
  struct Device {
    Ring ring;
    std::unordered_map<uintptr_t, Context> blocks; // held, or freed and still used by a stream
    std::map<uintptr_t, Context> ranges;           // reserved
  };
  using Devices = std::array<Device, OPENREG_MAX_DEVICES>;
  using Skipped = std::bitset<HistoryEntry::kActions>;

  static Skipped parse(const std::vector<std::string> &actions) {
    Skipped skipped;
    for (const auto &action : actions) {
      const auto *const found = std::find(std::begin(kActionNames), std::end(kActionNames), action);
      TORCH_CHECK(found != std::end(kActionNames), "Unknown TraceEntry action: ", action);
      skipped.set(static_cast<size_t>(found - std::begin(kActionNames)));
    }
    return skipped;
  }

  void drop(Context context) {
    if (context) {
      gone_.push_back(std::move(context));
    }
  }

  static std::string compile_context() {
    const auto *const own = own_remarks;
    return own == nullptr || own->compile_contexts.empty() ? kNotCompiled
                                                           : own->compile_contexts.back();
  }

  static std::string metadata() {
    return own_remarks == nullptr ? std::string() : own_remarks->metadata;
  }

  void push(int device, HistoryEntry entry) {
    if (skipped_.test(entry.action)) {
      drop(std::move(entry.context));
    } else {
      devices_[static_cast<size_t>(device)].ring.push(std::move(entry), gone_);
    }
  }

  // Keeps the stacks of what there is now, and completes the entry by those of what there was.
  void follow(const openreg_memory_event &event, HistoryEntry &entry) {
    auto &blocks = devices_[static_cast<size_t>(event.device)].blocks;
    auto &ranges = devices_[static_cast<size_t>(event.device)].ranges;
    switch (event.action) {
    case OPENREG_MEMORY_ALLOCATED:
      drop(std::exchange(blocks[event.address], entry.context));
      break;
    case OPENREG_MEMORY_FREE_REQUESTED:
      complete(entry, blocks[event.address]);
      break;
    case OPENREG_MEMORY_FREE_COMPLETED:
      if (const auto held = blocks.find(event.address); held != blocks.end()) {
        complete(entry, held->second);
        drop(std::move(held->second));
        blocks.erase(held);
      }
      break;
    case OPENREG_MEMORY_SEGMENT_ALLOCATED:
    case OPENREG_MEMORY_SEGMENT_MAPPED:
      drop(std::exchange(ranges[event.address], entry.context));
      break;
    case OPENREG_MEMORY_SEGMENT_FREED:
    case OPENREG_MEMORY_SEGMENT_UNMAPPED: {
      if (const auto above = ranges.upper_bound(event.address); above != ranges.begin()) {
        complete(entry, std::prev(above)->second); // an end of a range may be unmapped
      }
      const auto from = ranges.lower_bound(event.address);
      const auto to = ranges.lower_bound(event.address + event.bytes);
      for (auto range = from; range != to; ++range) {
        drop(std::move(range->second));
      }
      ranges.erase(from, to);
      break;
    }
    case OPENREG_MEMORY_EXHAUSTED:
      break;
    }
  }

  static void complete(HistoryEntry &entry, const Context &of_memory) {
    entry.context = entry.context ? entry.context : of_memory;
  }

  void add(const openreg_memory_event &event) {
    const auto *const call = RecordedCall::current_;
    HistoryEntry entry = {static_cast<HistoryEntry::Action>(event.action),
                          event.stream,
                          event.address,
                          event.bytes,
                          event.mempool,
                          /*time_us=*/0,
                          call != nullptr ? call->context : nullptr,
                          compile_context(),
                          metadata()};
    const std::lock_guard guard(mutex_);
    if (!is_recording.load(std::memory_order_relaxed)) { // any more
      return;
    }
    entry.time_us = now_us(); // in the order of the entries
    follow(event, entry);
    if (keep_.load(std::memory_order_relaxed) < KeepStacks::kOfAllocations) {
      drop(std::exchange(entry.context, nullptr));
    }
    push(event.device, std::move(entry));
  }

  std::mutex mutex_;
  Devices devices_;
  std::deque<Annotation> annotations_;
  std::vector<Context> gone_;
  size_t max_entries_ = 1;
  Skipped skipped_;
  std::atomic<KeepStacks> keep_ = KeepStacks::kNever;
  std::atomic<bool> cpp_frames_ = false;
};

static_assert(static_cast<int>(OPENREG_MEMORY_ALLOCATED) == HistoryEntry::kAllocated &&
              static_cast<int>(OPENREG_MEMORY_FREE_REQUESTED) == HistoryEntry::kFreeRequested &&
              static_cast<int>(OPENREG_MEMORY_FREE_COMPLETED) == HistoryEntry::kFreeCompleted &&
              static_cast<int>(OPENREG_MEMORY_SEGMENT_ALLOCATED) ==
                  HistoryEntry::kSegmentAllocated &&
              static_cast<int>(OPENREG_MEMORY_SEGMENT_FREED) == HistoryEntry::kSegmentFreed &&
              static_cast<int>(OPENREG_MEMORY_SEGMENT_MAPPED) == HistoryEntry::kSegmentMapped &&
              static_cast<int>(OPENREG_MEMORY_SEGMENT_UNMAPPED) == HistoryEntry::kSegmentUnmapped &&
              static_cast<int>(OPENREG_MEMORY_EXHAUSTED) == HistoryEntry::kExhausted);

std::atomic<bool> is_recording = false;

constinit thread_local RecordedCall::State *RecordedCall::current_ = nullptr;

void RecordedCall::begin(Kind kind) {
  if (openreg_in_bad_fork()) { // another thread of the parent may have had the recorder's lock
    return;
  }
  state_ = new State{Recorder::instance().gather(kind), current_};
  current_ = state_;
}

void RecordedCall::end() {
  current_ = state_->outer;
  delete state_;
  Recorder::instance().drop_gone();
}

// ---- what PyTorch's record_function tells -------------------------------------------------------

namespace {

bool is_compiled_region(const at::RecordFunction &function) {
  return std::string_view(function.name()).starts_with(kCompiledRegion);
}

at::CallbackHandle follow_compiled_regions() {
  return at::addGlobalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction &function) -> std::unique_ptr<at::ObserverContext> {
            if (is_compiled_region(function)) {
              remarks().compile_contexts.emplace_back(function.name());
            }
            return nullptr;
          },
          [](const at::RecordFunction &function, at::ObserverContext *) {
            auto &contexts = remarks().compile_contexts;
            if (is_compiled_region(function) && !contexts.empty()) {
              contexts.pop_back();
            }
          })
          .scopes({at::RecordScope::FUNCTION}));
}

at::CallbackHandle follow_annotations(bool of_all_threads) {
  const auto add = of_all_threads ? &at::addGlobalCallback : &at::addThreadLocalCallback;
  return add(at::RecordFunctionCallback(
                 [](const at::RecordFunction &function) -> std::unique_ptr<at::ObserverContext> {
                   Recorder::instance().annotate(function.name(), "START");
                   return nullptr;
                 },
                 [](const at::RecordFunction &function, at::ObserverContext *) {
                   Recorder::instance().annotate(function.name(), "END");
                 })
                 .scopes({at::RecordScope::USER_SCOPE}));
}

void follow(const HistoryOptions &options) {
  static std::mutex mutex;
  static std::optional<at::CallbackHandle> regions, annotations;
  const auto stop = [](std::optional<at::CallbackHandle> &handle) {
    if (handle) {
      at::removeCallback(*handle);
      handle.reset();
    }
  };
  const std::lock_guard guard(mutex);
  stop(regions);
  stop(annotations);
  if (options.enabled) {
    annotations = follow_annotations(options.annotations_of_all_threads);
    if (options.compile_context) {
      regions = follow_compiled_regions();
    }
  }
}

} // namespace

// ---- public -------------------------------------------------------------------------------------

void record_memory_history(const HistoryOptions &options) {
  require_own_allocator("recordHistory");
  if (options.enabled && options.cpp_frames) {
    torch::unwind::unwind(); // its first call reads tables of all libraries
  }
  Recorder::instance().set(options);
  follow(options);
}

const char *name_of(HistoryEntry::Action action) {
  return kActionNames[action];
}

DeviceHistory history_of(int device, bool with_entries) {
  return Recorder::instance().copy(device, with_entries);
}

std::vector<Annotation> annotations() {
  return Recorder::instance().copy_annotations();
}

Context context_of(int device, uintptr_t address) {
  return Recorder::instance().find(device, address);
}

void record_snapshot(int device, size_t active_bytes, uint64_t mempool) {
  Recorder::instance().add_snapshot(device, active_bytes, mempool);
}

void set_memory_metadata(std::string text) {
  remarks().metadata = std::move(text);
}

const std::string &memory_metadata() {
  return remarks().metadata;
}

} // namespace openreg
