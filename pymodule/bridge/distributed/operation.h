// Operations of a process group on streams: collectives and messages that a stream's worker runs
// one after the other, and their outcome.
//
// An operation knows addresses of device memory and does not keep that memory alive, like any
// queued work. It keeps the communicator alive. It never takes the GIL.
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

using Buffers = c10::SmallVector<openreg_comm_buffer, 4>;

// One rank's arguments of a collective, with the buffers that they refer to.
struct CollectiveArguments {
  openreg_collective call{};
  Buffers inputs, outputs;

  // The bytes that this rank passes as inputs and outputs.
  size_t bytes() const {
    size_t count = 0;
    for (const auto *buffers : {&inputs, &outputs}) {
      for (const auto &buffer : *buffers) {
        count += buffer.count;
      }
    }
    return count * openreg_dtype_bytes(call.dtype);
  }

  // The call with pointers to the buffers. They are valid until this object is moved.
  const openreg_collective &complete() {
    call.inputs = inputs.data();
    call.outputs = outputs.data();
    call.input_count = static_cast<int>(inputs.size());
    call.output_count = static_cast<int>(outputs.size());
    return call;
  }
};

// How an operation ended. The thread that runs the operation writes it once.
class Outcome {
public:
  // It failed by its own timeout, or by the timeout of a thread that waited for it.
  bool has_timed_out() const { return has_timed_out_; }
  void set_timed_out() { has_timed_out_ = true; }

  bool has_failed() const { return failed_.load(std::memory_order_acquire); }
  // Valid when it has failed.
  const std::string &message() const { return message_; }

  // Sets the outcome, with the last error as the message. Returns `status`.
  openreg_status set(openreg_status status) {
    if (status != OPENREG_OK) {
      message_ = openreg_last_error();
      failed_.store(true, std::memory_order_release);
    }
    return status;
  }

private:
  std::string message_;
  std::atomic<bool> failed_{false}, has_timed_out_{false};
};

class Operation {
public:
  CommunicatorPtr communicator;
  std::vector<CollectiveArguments> collectives;
  std::vector<openreg_message> messages; // after the collectives, all concurrently
  uint64_t timeout_ns = UINT64_MAX;      // for each collective, and for the messages
  std::shared_ptr<Outcome> outcome = std::make_shared<Outcome>();
  FlightEntryPtr flight_entry;                         // null: not recorded
  std::shared_ptr<EphemeralTimeout> ephemeral_timeout; // null: this operation ends none of it
  std::chrono::milliseconds ephemeral_owned{0};

  // Runs the operation, or the rest of it, and waits for the other ranks.
  openreg_status run();

  // Runs it for a replay of a graph, any number of times. Its failure is reported by the stream
  // alone, not by the Work of the capture.
  openreg_status replay();

  // Runs a short operation on the calling thread if the other ranks arrive very soon. Returns
  // whether it is finished; if not, `run` does the rest.
  bool try_inline();

private:
  openreg_status run_all();
  // Record start and end in the flight recorder and the outcome. `end` returns `status`.
  void start();
  openreg_status end(openreg_status status);

  // The only collective has begun and waits for the other ranks.
  bool has_begun_ = false;
  std::chrono::steady_clock::time_point began_;
  // The failure on the calling thread, which `run` reports to the stream.
  openreg_status failed_ = OPENREG_OK;
};

// Launches an operation on a stream: inline if the stream is idle and the operation is short, by
// the stream's worker otherwise. May wait for room in the stream's queue. On a capturing stream the
// operation becomes a graph node; all ranks must replay their graphs in the same order.
void launch_operation(c10::DeviceIndex device, int stream, std::unique_ptr<Operation> operation);

inline c10::Stream stream_of(c10::DeviceIndex device, int stream) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDeviceType, device), stream);
}

using SharedEvent = std::shared_ptr<openreg_event>;

// Keeps work in the order of the calls, although it is launched on several streams.
class CallOrder {
public:
  // Call before launching on `stream`: makes it wait for the previous work, if another stream has
  // it.
  void enter(c10::DeviceIndex device, int stream) const {
    if (last_ && stream != stream_) {
      wait_for_event_on({device, stream}, last_.get());
    }
  }
  // Call after launching; `end` was recorded behind the work.
  void leave(int stream, SharedEvent end) {
    stream_ = stream;
    last_ = std::move(end);
  }
  // An event behind all work so far; null: there was none.
  const SharedEvent &last() const { return last_; }

private:
  int stream_ = OPENREG_STREAM_DEFAULT;
  SharedEvent last_;
};

} // namespace openreg
