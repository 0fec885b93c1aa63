// The flight recorder: the last calls of this process's groups and their progress, in the format of
// PyTorch's recorder for NCCL, because PyTorch's tools read it
// (torch/csrc/distributed/c10d/FlightRecorder.hpp). PyTorch's own recorder cannot be used: it is a
// template over CUDA's events, which a build without CUDA does not have, and over a library that
// the wheel lacks.
//
// A call is recorded when it is queued. Its operation records on the stream's worker when it began
// and ended. An entry holds sizes and types, and keeps no tensor alive. Each call of a coalesced
// group has an entry whose progress is never updated; one more entry stands for the whole group.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/python_stack.h"

namespace openreg {

struct FlightGroup {
  uint64_t id; // groups of the process are counted from 0
  std::string name, description;
  // The sequence numbers of the last calls in each state; -1: none. Collectives and messages alike.
  std::atomic<int64_t> queued{-1}, started{-1}, completed{-1};
};

// Size and type of a tensor argument.
struct FlightTensor {
  at::DimVector sizes;
  at::ScalarType dtype;
};
using FlightTensors = c10::SmallVector<FlightTensor, 1>;
FlightTensors flight_tensors(const std::vector<at::Tensor> &tensors);

// The description of a call.
struct FlightCall {
  std::shared_ptr<FlightGroup> group;
  std::string title; // "all_reduce"
  bool is_message;
  uint64_t collective_number, message_number, call_number; // of the group, so far
  std::chrono::milliseconds timeout;
  FlightTensors inputs, outputs;
  std::shared_ptr<const PythonStack> stack; // null: not captured
  bool is_timed;                            // only then the start time is shown, as with NCCL

  uint64_t number() const { return is_message ? message_number : collective_number; }
};

// One entry of the recorder: a call and its progress. Times are nanoseconds since 1970; 0: not yet.
class FlightEntry {
public:
  FlightEntry(FlightCall call, uint64_t id);

  void start();
  void end(bool succeeded);

  const FlightCall call;
  const uint64_t id; // unique in the recorder
  const std::thread::id thread;
  const std::string thread_name;
  const int64_t created_ns;

  int64_t started_ns() const { return call.is_timed ? started_ns_.load() : 0; }
  int64_t completed_ns() const { return completed_ns_; }
  // It has ended. If completed_ns() is 0, it failed.
  bool is_retired() const { return is_retired_; }
  double duration_ms() const; // valid for a timed call that has completed

private:
  std::atomic<int64_t> started_ns_{0}, completed_ns_{0};
  std::atomic<bool> is_retired_{false};
};

using FlightEntryPtr = std::shared_ptr<FlightEntry>;

class FlightRecorder {
public:
  // Never destroyed: workers may outlive it.
  static FlightRecorder &get();

  // False if TORCH_FR_BUFFER_SIZE is 0.
  bool is_on() const { return capacity_ > 0; }
  // The Python stack of the caller; null when the recorder is off.
  std::shared_ptr<const PythonStack> capture_stack() const {
    return is_on() ? PythonStack::capture() : nullptr;
  }

  // These do nothing when the recorder is off; `add` returns null then.
  FlightEntryPtr add(FlightCall call);
  void add_group(const FlightGroup &group, std::vector<uint64_t> ranks);

  // Call before the first use. Does not read environment variables, unlike get().
  static void set_library_version(std::string version);
  // Drops all entries.
  void reset();

  struct Parts {
    bool calls = true, frames = true, only_active = false;
  };
  // A dump for pickle.loads. Takes the GIL if it includes frames.
  std::string dump(Parts parts);
  // A dump as JSON without frames; unknown times are 0.
  std::string dump_json(Parts parts);

private:
  FlightRecorder();
  std::vector<FlightEntryPtr> records(bool only_active);
  c10::IValue describe_groups();
  c10::IValue describe_progress(bool as_json);
  c10::IValue describe(Parts parts, bool as_json);

  const size_t capacity_;

  struct Ranks {
    std::string name, description;
    std::vector<uint64_t> ranks;
  };
  std::mutex mutex_;
  std::vector<FlightEntryPtr> ring_;
  size_t next_ = 0; // index of the next entry when the ring is full
  uint64_t next_id_ = 0;
  std::vector<Ranks> ranks_;                                // in the order of add_group()
  std::map<uint64_t, std::shared_ptr<FlightGroup>> groups_; // groups with recorded calls
  inline static std::string library_version_;
};

// Registers the recorder with PyTorch's debug server (requests.cpp). Call once in a process.
void register_flight_requests();

} // namespace openreg
