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

#include "core/status.h"

namespace openreg {

namespace {

constexpr const char *kActionNames[HistoryEvent::kActions] = {
    "alloc",        "free_requested", "free_completed", "segment_alloc",
    "segment_free", "segment_map",    "segment_unmap",  "oom",
    "snapshot",     "annotate",
};

constexpr const char *kCompiledRegion = "Torch-Compiled Region"; // Dynamo's name for it
constexpr const char *kNotCompiled = "N/A";

// What this thread attaches to its events. Allocated on first use and never freed: a thread that
// ends may still free memory, and static thread-local storage is scarce for a library that is
// loaded late.
struct ThreadAnnotations {
  std::vector<std::string> compile_contexts;
  std::string metadata;
};
constinit thread_local ThreadAnnotations *own_annotations = nullptr;

ThreadAnnotations &thread_annotations() {
  if (own_annotations == nullptr) {
    own_annotations = new ThreadAnnotations();
  }
  return *own_annotations;
}

int64_t now_us() {
  return c10::getTime() / 1000;
}

} // namespace

// The newest events.
class HistoryRing {
public:
  void set_room(size_t room) { room_ = std::max<size_t>(room, 1); }

  // Moves the contexts of the events that no longer fit into `dropped`.
  void push(HistoryEvent entry, std::vector<Context> &dropped) {
    for (; entries_.size() >= room_; entries_.pop_front()) {
      dropped.push_back(std::move(entries_.front().context));
    }
    entries_.push_back(std::move(entry));
  }

  std::vector<HistoryEvent> copy() const {
    const auto kept = static_cast<std::ptrdiff_t>(std::min(entries_.size(), room_));
    return {entries_.end() - kept, entries_.end()};
  }

private:
  std::deque<HistoryEvent> entries_; // may exceed room_ after that was reduced
  size_t room_ = 1;
};

// Its lock is the innermost lock of a thread: while it is held, nothing takes another lock. The
// destructors of stacks do. So stacks are moved into `dropped_stacks_`, and destroyed after the
// lock is released.
class HistoryRecorder {
public:
  static HistoryRecorder &instance() {
    static auto *const recorder = new HistoryRecorder(); // threads may outlive static objects
    return *recorder;
  }

  static void observe(const openreg_memory_event *event) { instance().add(*event); }

  void set(const HistoryOptions &options) {
    const auto skipped = parse(options.skipped_actions);
    if (!options.enabled) {
      is_recording.store(false);
      openreg_memory_remove_observer(&observe);
    }
    const auto old = std::make_unique<Devices>(); // destroyed after the lock is released
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
    stack_policy_.store(options.enabled ? options.stacks : StackPolicy::kNever);
    cpp_frames_.store(options.cpp_frames);
    gather_.store(options.gather);
    if (options.enabled) {
      if (!openreg_in_bad_fork()) { // else there is no memory to observe
        check(openreg_memory_add_observer(&observe));
      }
      is_recording.store(true);
    }
  }

  Context gather(MemoryStackScope::Kind kind) const {
    const auto least =
        kind == MemoryStackScope::kAllocate ? StackPolicy::kLiveBlocks : StackPolicy::kAllEvents;
    if (stack_policy_.load(std::memory_order_relaxed) < least) {
      return nullptr;
    }
    if (auto *const gather = gather_.load()) {
      return gather();
    }
    return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, cpp_frames_.load());
  }

  void destroy_dropped() {
    std::vector<Context> dropped;
    const std::lock_guard guard(mutex_);
    std::swap(dropped, dropped_stacks_); // destroyed after the guard, because it is declared before
  }

  void add_snapshot(int device, size_t active_bytes, uint64_t mempool) {
    const std::lock_guard guard(mutex_);
    if (is_recording.load(std::memory_order_relaxed)) {
      push(device, {HistoryEvent::kSnapshot, 0, 0, active_bytes, mempool, now_us(), nullptr,
                    compile_context(), metadata()});
    }
  }

  void add_annotation(const openreg_block &block, std::string text) {
    const auto context = gather(MemoryStackScope::kAllocate);
    const auto address = reinterpret_cast<uintptr_t>(block.address);
    const std::lock_guard guard(mutex_);
    if (is_recording.load(std::memory_order_relaxed)) {
      push(block.device, {HistoryEvent::kAnnotated, block.stream, address, block.requested_bytes,
                          /*mempool=*/0, now_us(), context, compile_context(), std::move(text)});
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
    HistoryRing ring;
    std::unordered_map<uintptr_t, Context> blocks; // allocated, or freed and still used by a stream
    std::map<uintptr_t, Context> ranges;           // reserved
  };
  using Devices = std::array<Device, OPENREG_MAX_DEVICES>;
  using Skipped = std::bitset<HistoryEvent::kActions>;

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
      dropped_stacks_.push_back(std::move(context));
    }
  }

  static std::string compile_context() {
    const auto *const own = own_annotations;
    return own == nullptr || own->compile_contexts.empty() ? kNotCompiled
                                                           : own->compile_contexts.back();
  }

  static std::string metadata() {
    return own_annotations == nullptr ? std::string() : own_annotations->metadata;
  }

  void push(int device, HistoryEvent entry) {
    if (skipped_.test(entry.action)) {
      drop(std::move(entry.context));
    } else {
      devices_[static_cast<size_t>(device)].ring.push(std::move(entry), dropped_stacks_);
    }
  }

  // Updates the stacks of current memory. An event without a stack gets that of its memory.
  void track(const openreg_memory_event &event, HistoryEvent &entry) {
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
        complete(entry, std::prev(above)->second); // the end of a range may be unmapped
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

  static void complete(HistoryEvent &entry, const Context &of_memory) {
    entry.context = entry.context ? entry.context : of_memory;
  }

  void add(const openreg_memory_event &event) {
    const auto *const call = MemoryStackScope::current_;
    HistoryEvent entry = {static_cast<HistoryEvent::Action>(event.action),
                          event.stream,
                          event.address,
                          event.bytes,
                          event.mempool,
                          /*time_us=*/0,
                          call != nullptr ? call->context : nullptr,
                          compile_context(),
                          metadata()};
    const std::lock_guard guard(mutex_);
    if (!is_recording.load(std::memory_order_relaxed)) { // recording was turned off meanwhile
      return;
    }
    entry.time_us = now_us(); // taken under the lock, so that times are in the order of the events
    track(event, entry);
    if (stack_policy_.load(std::memory_order_relaxed) < StackPolicy::kAllocations) {
      drop(std::exchange(entry.context, nullptr));
    }
    push(event.device, std::move(entry));
  }

  std::mutex mutex_;
  Devices devices_;
  std::deque<Annotation> annotations_;
  std::vector<Context> dropped_stacks_;
  size_t max_entries_ = 1;
  Skipped skipped_;
  std::atomic<StackPolicy> stack_policy_ = StackPolicy::kNever;
  std::atomic<bool> cpp_frames_ = false;
  std::atomic<Context (*)()> gather_ = nullptr;
};

static_assert(static_cast<int>(OPENREG_MEMORY_ALLOCATED) == HistoryEvent::kAllocated &&
              static_cast<int>(OPENREG_MEMORY_FREE_REQUESTED) == HistoryEvent::kFreeRequested &&
              static_cast<int>(OPENREG_MEMORY_FREE_COMPLETED) == HistoryEvent::kFreeCompleted &&
              static_cast<int>(OPENREG_MEMORY_SEGMENT_ALLOCATED) ==
                  HistoryEvent::kSegmentAllocated &&
              static_cast<int>(OPENREG_MEMORY_SEGMENT_FREED) == HistoryEvent::kSegmentFreed &&
              static_cast<int>(OPENREG_MEMORY_SEGMENT_MAPPED) == HistoryEvent::kSegmentMapped &&
              static_cast<int>(OPENREG_MEMORY_SEGMENT_UNMAPPED) == HistoryEvent::kSegmentUnmapped &&
              static_cast<int>(OPENREG_MEMORY_EXHAUSTED) == HistoryEvent::kExhausted);

std::atomic<bool> is_recording = false;

constinit thread_local MemoryStackScope::State *MemoryStackScope::current_ = nullptr;

void MemoryStackScope::begin(Kind kind) {
  if (openreg_in_bad_fork()) { // another thread of the parent may have held the recorder's lock
    return;
  }
  state_ = new State{HistoryRecorder::instance().gather(kind), {}, current_};
  if (is_logging.load(std::memory_order_relaxed)) {
    state_->cause = find_cause(/*with_stack=*/kind == kAllocate);
    state_->cause.flags |= kind == kAllocate ? kLogAllocating : 0;
  }
  current_ = state_;
}

void MemoryStackScope::end() {
  current_ = state_->outer;
  delete state_;
  HistoryRecorder::instance().destroy_dropped();
}

// ---- callbacks for PyTorch's record_function ---------------------------------------------------

namespace {

bool is_compiled_region(const at::RecordFunction &function) {
  return std::string_view(function.name()).starts_with(kCompiledRegion);
}

at::CallbackHandle add_compiled_region_callback() {
  return at::addGlobalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction &function) -> std::unique_ptr<at::ObserverContext> {
            if (is_compiled_region(function)) {
              thread_annotations().compile_contexts.emplace_back(function.name());
            }
            return nullptr;
          },
          [](const at::RecordFunction &function, at::ObserverContext *) {
            auto &contexts = thread_annotations().compile_contexts;
            if (is_compiled_region(function) && !contexts.empty()) {
              contexts.pop_back();
            }
          })
          .scopes({at::RecordScope::FUNCTION}));
}

at::CallbackHandle add_annotation_callback(bool of_all_threads) {
  const auto add = of_all_threads ? &at::addGlobalCallback : &at::addThreadLocalCallback;
  return add(at::RecordFunctionCallback(
                 [](const at::RecordFunction &function) -> std::unique_ptr<at::ObserverContext> {
                   HistoryRecorder::instance().annotate(function.name(), "START");
                   return nullptr;
                 },
                 [](const at::RecordFunction &function, at::ObserverContext *) {
                   HistoryRecorder::instance().annotate(function.name(), "END");
                 })
                 .scopes({at::RecordScope::USER_SCOPE}));
}

void track(const HistoryOptions &options) {
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
    annotations = add_annotation_callback(options.annotations_of_all_threads);
    if (options.compile_context) {
      regions = add_compiled_region_callback();
    }
  }
}

} // namespace

// ---- public -------------------------------------------------------------------------------------

void record_memory_history(const HistoryOptions &options) {
  if (options.enabled && options.cpp_frames) {
    torch::unwind::unwind(); // its first call reads the tables of all libraries
  }
  HistoryRecorder::instance().set(options);
  track(options);
}

const char *name_of(HistoryEvent::Action action) {
  return kActionNames[action];
}

DeviceHistory history_of(int device, bool with_entries) {
  return HistoryRecorder::instance().copy(device, with_entries);
}

std::vector<Annotation> annotations() {
  return HistoryRecorder::instance().copy_annotations();
}

Context context_of(int device, uintptr_t address) {
  return HistoryRecorder::instance().find(device, address);
}

void record_snapshot(int device, size_t active_bytes, uint64_t mempool) {
  HistoryRecorder::instance().add_snapshot(device, active_bytes, mempool);
}

void annotate_block(const openreg_block &block, std::string text) {
  if (is_recording.load(std::memory_order_relaxed)) {
    HistoryRecorder::instance().add_annotation(block, std::move(text));
  }
}

void set_memory_metadata(std::string text) {
  thread_annotations().metadata = std::move(text);
}

const std::string &memory_metadata() {
  return thread_annotations().metadata;
}

} // namespace openreg
