// The flight recorder: the last calls of this process's groups, and how far each has come, in the
// words in which PyTorch's own has those of NCCL, for its tools read them
// (torch/csrc/distributed/c10d/FlightRecorder.hpp). That one cannot be had: it is a template over
// CUDA's events, which a build without CUDA does not have, and over a library that the wheel lacks.
//
// A call is recorded when it is queued; its operation notes on the stream's worker when it began
// and ended. A record knows sizes and types, and keeps no tensor alive. Of the calls of a group of
// calls (coalescing) each has a record, which is never noted in, before one that is for all of
// them.
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

#include "distributed/flight/python_frames.h"

namespace openreg {

struct RecordedGroup {
  uint64_t id; // the process's groups are counted from 0
  std::string name, description;
  // The numbers of the last calls that came so far; -1: none. Collectives and messages alike.
  std::atomic<int64_t> queued{-1}, started{-1}, completed{-1};
};

// What a call is about, of a tensor that it was given.
struct RecordedTensor {
  at::DimVector sizes;
  at::ScalarType dtype;
};
using RecordedTensors = c10::SmallVector<RecordedTensor, 1>;
RecordedTensors recorded(const std::vector<at::Tensor> &tensors);

struct RecordedCall {
  std::shared_ptr<RecordedGroup> group;
  std::string title; // "all_reduce"
  bool is_message;
  uint64_t collective_number, message_number, call_number; // of the group's, so far
  std::chrono::milliseconds timeout;
  RecordedTensors inputs, outputs;
  std::shared_ptr<const PythonFrames> frames; // null: not looked at
  bool is_timed;                              // as NCCL's, which sees only then when a call began

  uint64_t number() const { return is_message ? message_number : collective_number; }
};

// Times are nanoseconds since 1970; 0: not yet.
class CallRecord {
public:
  CallRecord(RecordedCall call, uint64_t id);

  void start();
  void end(bool succeeded);

  const RecordedCall call;
  const uint64_t id; // among the recorder's
  const std::thread::id thread;
  const std::string thread_name;
  const int64_t created_ns;

  int64_t started_ns() const { return call.is_timed ? started_ns_.load() : 0; }
  int64_t completed_ns() const { return completed_ns_; }
  // It ended; not completed: it failed.
  bool is_retired() const { return is_retired_; }
  double duration_ms() const; // of a timed one that has completed

private:
  std::atomic<int64_t> started_ns_{0}, completed_ns_{0};
  std::atomic<bool> is_retired_{false};
};

using RecordPtr = std::shared_ptr<CallRecord>;

class FlightRecorder {
public:
  // Never destroyed: workers may outlive it.
  static FlightRecorder &get();

  // TORCH_FR_BUFFER_SIZE is not 0.
  bool is_on() const { return capacity_ > 0; }
  // Where the caller is; null when it is off.
  std::shared_ptr<const PythonFrames> look_where() const {
    return is_on() ? PythonFrames::here() : nullptr;
  }

  // These do nothing when it is off; `add` returns null.
  RecordPtr add(RecordedCall call);
  void add_group(const RecordedGroup &group, std::vector<uint64_t> ranks);

  // Before the first call; reads no variable yet.
  static void set_library_version(std::string version);
  // What was recorded so far is not told any more.
  void reset();

  struct Parts {
    bool calls = true, frames = true, only_active = false;
  };
  // For pickle.loads. With frames it takes the GIL.
  std::string dump(Parts parts);
  // The same without frames as JSON, where what is not known yet is 0.
  std::string dump_json(Parts parts);

private:
  FlightRecorder();
  std::vector<RecordPtr> records(bool only_active);
  c10::IValue describe_groups();
  c10::IValue describe_progress(bool as_json);
  c10::IValue describe(Parts parts, bool as_json);

  const size_t capacity_;

  struct Ranks {
    std::string name, description;
    std::vector<uint64_t> ranks;
  };
  std::mutex mutex_;
  std::vector<RecordPtr> ring_;
  size_t next_ = 0; // where the next one goes when the ring is full
  uint64_t next_id_ = 0;
  std::vector<Ranks> ranks_;                                  // of groups, as they were added
  std::map<uint64_t, std::shared_ptr<RecordedGroup>> groups_; // of which calls were recorded
  inline static std::string library_version_;
};

// Has PyTorch's debug server find it (flight_requests.cpp). Once a process.
void register_flight_requests();

} // namespace openreg
