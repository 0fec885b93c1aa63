// What a group gives to streams: collectives and messages, done on a stream's worker one after the
// other, and what became of them.
//
// An operation knows addresses of device memory and keeps none of it alive, as any queued work; it
// keeps the communicator alive. It never takes the GIL.
#pragma once

#include <c10/core/Stream.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "distributed/communicator.h"
#include "distributed/ephemeral_timeout.h"
#include "distributed/flight/recorder.h"
#include "streams/event_owner.h"

namespace openreg {

using Parts = c10::SmallVector<openreg_part, 4>;

// One rank's side of a collective, with the parts that it is given as.
struct Collective {
  openreg_collective call{};
  Parts inputs, outputs;

  // Of what this rank gives and takes.
  size_t bytes() const {
    size_t count = 0;
    for (const auto *parts : {&inputs, &outputs}) {
      for (const auto &part : *parts) {
        count += part.count;
      }
    }
    return count * openreg_dtype_bytes(call.dtype);
  }

  // What points to the parts, wherever this has been moved to.
  const openreg_collective &complete() {
    call.inputs = inputs.data();
    call.outputs = outputs.data();
    call.input_count = static_cast<int>(inputs.size());
    call.output_count = static_cast<int>(outputs.size());
    return call;
  }
};

// What became of an operation. Written once, by who does it.
class Outcome {
public:
  // It failed because it took too long, by its own time or by that of who waited for it.
  bool was_too_late() const { return was_too_late_; }
  void note_late() { was_too_late_ = true; }

  bool has_failed() const { return failed_.load(std::memory_order_acquire); }
  // Of one that has failed.
  const std::string &sentence() const { return sentence_; }

  // Returns `status`, for the stream to keep, too.
  openreg_status set(openreg_status status) {
    if (status != OPENREG_OK) {
      sentence_ = openreg_last_error();
      failed_.store(true, std::memory_order_release);
    }
    return status;
  }

private:
  std::string sentence_;
  std::atomic<bool> failed_{false}, was_too_late_{false};
};

class Operation {
public:
  CommunicatorPtr communicator;
  std::vector<Collective> collectives;
  std::vector<openreg_message> messages; // after them, all at the same time
  uint64_t timeout_ns = UINT64_MAX;      // of each collective, and of the messages
  std::shared_ptr<Outcome> outcome = std::make_shared<Outcome>();
  RecordPtr record;                      // null: it is not recorded
  std::shared_ptr<ExtraTime> extra_time; // null: none of it ends with this
  std::chrono::milliseconds extra_time_owned{0};

  // Does it, or what is left to do, and waits for the others as long as it takes.
  openreg_status run();

  // The same for a replay of the graph that has it, any number of times. Who captured it is not
  // told what becomes of it, but by the stream.
  openreg_status replay();

  // Does a short one on the calling thread if the others come within moments; else the rest is for
  // `run`. Whether there is none.
  bool try_now();

private:
  openreg_status run_all();
  // What others are told of it: the flight recorder, and who waits.
  void start();
  openreg_status end(openreg_status status); // as it was given

  // The only collective has begun, and waits for the others.
  bool has_begun_ = false;
  std::chrono::steady_clock::time_point began_;
  // What it failed with on the calling thread, for the stream to keep.
  openreg_status failed_ = OPENREG_OK;
};

// Does it on a stream: at once if the stream is idle and it takes moments, else by the stream's
// worker. Waits for room in its queue as Python wants it. On a stream that captures it is a node of
// a graph, and all ranks must replay in the same order.
void launch(c10::DeviceIndex device, int stream, std::unique_ptr<Operation> operation);

inline c10::Stream stream_of(c10::DeviceIndex device, int stream) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDeviceType, device), stream);
}

using SharedEvent = std::shared_ptr<openreg_event>;

// Work that is done in the order of the calls though it is given to several streams.
class Order {
public:
  // Before work is given to the stream: it shall wait for what was given to another one.
  void enter(c10::DeviceIndex device, int stream) const {
    if (last_ && stream != stream_) {
      wait_for_event_on({device, stream}, last_.get());
    }
  }
  // After that; `end` was recorded behind it.
  void leave(int stream, SharedEvent end) {
    stream_ = stream;
    last_ = std::move(end);
  }
  // Behind all that was given; null: nothing was.
  const SharedEvent &last() const { return last_; }

private:
  int stream_ = OPENREG_STREAM_DEFAULT;
  SharedEvent last_;
};

} // namespace openreg
