// The history of device memory, as torch.cuda.memory._record_memory_history keeps it. While it is
// off, it costs one relaxed load for each allocation.
//
// An observer of the allocator records events. It runs with a device's lock held and must not wait
// for other threads. Stacks need the GIL, so a MemoryStackScope captures the stack before the
// allocator is called, and the observer finds it on its own thread. Stacks are symbolized only for
// a snapshot.
#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "allocator/allocator.h"
#include "memory/observation/allocation_log.h"

namespace openreg {

using Context = std::shared_ptr<c10::GatheredContext>; // a stack; null if none was kept

// Which stacks are kept. Each policy includes the previous ones.
enum class StackPolicy : uint8_t { kNever, kLiveBlocks, kAllocations, kAllEvents };

struct HistoryOptions {
  bool enabled = false;
  StackPolicy stacks = StackPolicy::kNever;
  bool cpp_frames = false;
  Context (*gather)() = nullptr; // returns the caller's stack; null: PyTorch's function
  size_t max_entries = 1;        // for each device; new events replace the oldest ones
  bool clear = false;
  bool compile_context = false;
  bool annotations_of_all_threads = false;
  std::vector<std::string> skipped_actions;
};

// Turns recording on or off. Discards the history when recording is turned off, or if `clear` is
// set. skipped_actions contains names that name_of returns.
void record_memory_history(const HistoryOptions &options);

struct HistoryEvent {
  enum Action : uint8_t {
    kAllocated,
    kFreeRequested,
    kFreeCompleted,
    kSegmentAllocated,
    kSegmentFreed,
    kSegmentMapped,
    kSegmentUnmapped,
    kExhausted,
    kSnapshot,
    kAnnotated,
    kActions
  };
  Action action;
  int stream;
  uintptr_t address; // kExhausted: the free bytes of the device
  size_t bytes;      // blocks: as requested
  uint64_t mempool;
  int64_t time_us; // since 1970
  Context context;
  std::string compile_context;
  std::string metadata;
};

// Returns PyTorch's name of an action: "alloc", "free_requested" and so on.
const char *name_of(HistoryEvent::Action action);

struct Annotation {
  int device;
  int64_t time_us;
  std::string name;
  const char *stage; // "START" or "END"
};

// A copy of a device's history: its events, and the stacks of current blocks and reserved ranges,
// by address.
struct DeviceHistory {
  std::vector<HistoryEvent> entries; // oldest first
  std::unordered_map<uintptr_t, Context> blocks;
  std::unordered_map<uintptr_t, Context> ranges;
};
DeviceHistory history_of(int device, bool with_entries);
std::vector<Annotation> annotations();

// Returns the stack of the allocated block that starts at an address, if it was recorded.
Context context_of(int device, uintptr_t address);

// Records that a snapshot was taken.
void record_snapshot(int device, size_t active_bytes, uint64_t mempool);

// Records a text about the allocated block, with the stack of the caller, who holds the GIL. Does
// nothing while the history is off.
void annotate_block(const openreg_block &block, std::string text);

// Sets the text that is attached to this thread's events from now on; "" for none.
void set_memory_metadata(std::string metadata);
const std::string &memory_metadata();

extern std::atomic<bool> is_recording;

// While it exists, events that this thread causes are recorded with the stack that the thread has
// at its construction, in the history and in the log (allocation_log.h).
class MemoryStackScope {
public:
  enum Kind { kAllocate, kFree, kOther };

  explicit MemoryStackScope(Kind kind) {
    if (is_recording.load(std::memory_order_relaxed) || is_logging.load(std::memory_order_relaxed))
        [[unlikely]] {
      begin(kind);
    }
  }
  ~MemoryStackScope() {
    if (state_ != nullptr) [[unlikely]] {
      end();
    }
  }
  MemoryStackScope(const MemoryStackScope &) = delete;
  MemoryStackScope &operator=(const MemoryStackScope &) = delete;

  // The cause that the innermost scope of this thread found; null outside of a scope.
  static const LogCause *current_cause() {
    return current_ == nullptr ? nullptr : &current_->cause;
  }

private:
  friend class HistoryRecorder;
  struct State {
    Context context;
    LogCause cause;
    State *outer;
  };

  void begin(Kind kind);
  void end();

  static constinit thread_local State *current_ __attribute__((tls_model("initial-exec")));

  State *state_ = nullptr;
};

} // namespace openreg
