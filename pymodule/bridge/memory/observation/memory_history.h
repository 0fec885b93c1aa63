// The history of device memory: what torch.cuda.memory._record_memory_history keeps, under its
// rules. Off, which is the rule, it costs one relaxed load for each allocation.
//
// The allocator tells what happens to an observer, which runs with a device's lock held and must
// wait for nobody. Stacks need the GIL, so they are gathered before the allocator is entered, by a
// RecordedCall, which the observer finds on its own thread. Nothing is made text before someone
// asks for a snapshot.
#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "allocator/allocator.h"

namespace openreg {

using Context = std::shared_ptr<c10::GatheredContext>; // a stack; null where none was kept

// Of what stacks are kept; each includes those before it.
enum class KeepStacks : uint8_t { kNever, kOfHeld, kOfAllocations, kOfFrees };

struct HistoryOptions {
  bool enabled = false;
  KeepStacks stacks = KeepStacks::kNever;
  bool cpp_frames = false;
  size_t max_entries = 1; // for each device; later events take the place of earlier ones
  bool clear = false;
  bool compile_context = false;
  bool annotations_of_all_threads = false;
  std::vector<std::string> skipped_actions;
};

// Throws away what was recorded when it turns recording off, or is told to clear. What skipped
// actions may be called is what HistoryEntry::action returns.
void record_memory_history(const HistoryOptions &options);

struct HistoryEntry {
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
    kActions
  };
  Action action;
  int stream;
  uintptr_t address; // of kExhausted: the bytes that were free on the device
  size_t bytes;      // of blocks: as requested
  uint64_t mempool;
  int64_t time_us; // since 1970
  Context context;
  std::string compile_context;
  std::string metadata;
};

// "alloc", "free_requested" and so on, as PyTorch spells them.
const char *name_of(HistoryEntry::Action action);

struct Annotation {
  int device;
  int64_t time_us;
  std::string name;
  const char *stage; // "START" or "END"
};

// Copies of what is recorded of a device: its events, and the stacks of the blocks and reserved
// ranges there are, by their addresses.
struct DeviceHistory {
  std::vector<HistoryEntry> entries; // oldest first
  std::unordered_map<uintptr_t, Context> blocks;
  std::unordered_map<uintptr_t, Context> ranges;
};
DeviceHistory history_of(int device, bool with_entries);
std::vector<Annotation> annotations();

// The stack of the block that begins at an address, if it is held and was recorded.
Context context_of(int device, uintptr_t address);

// Notes that a snapshot was taken.
void record_snapshot(int device, size_t active_bytes, uint64_t mempool);

// What is said of all that this thread allocates from now on; "" for nothing.
void set_memory_metadata(std::string metadata);
const std::string &memory_metadata();

extern std::atomic<bool> is_recording;

// While one lives, what the allocator does on this thread is recorded with the stack that the
// thread has now.
class RecordedCall {
public:
  enum Kind { kAllocate, kFree, kOther };

  explicit RecordedCall(Kind kind) {
    if (is_recording.load(std::memory_order_relaxed)) [[unlikely]] {
      begin(kind);
    }
  }
  ~RecordedCall() {
    if (state_ != nullptr) [[unlikely]] {
      end();
    }
  }
  RecordedCall(const RecordedCall &) = delete;
  RecordedCall &operator=(const RecordedCall &) = delete;

private:
  friend class Recorder;
  struct State {
    Context context;
    State *outer;
  };

  void begin(Kind kind);
  void end();

  static constinit thread_local State *current_ __attribute__((tls_model("initial-exec")));

  State *state_ = nullptr;
};

} // namespace openreg
