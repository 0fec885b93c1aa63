// This thread's turn on a stream: while it lasts, the thread does the stream's work itself.
//
// Everything that touches device memory on the calling thread does so within a turn on the current
// stream: behind all work that was given to the stream before, and before all that comes later.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <type_traits>
#include <utility>

#include "core/status.h"
#include "device/capture.h"

namespace openreg {

class Turn {
public:
  // Waits until the work before it has finished, and raises what that work failed with.
  explicit Turn(c10::DeviceIndex device) : Turn(device, kIfIdle) {
    if (!held_) [[unlikely]] {
      wait();
    }
  }

  // Holds the turn only if the stream is idle, or this thread's already.
  enum IfIdle { kIfIdle };
  Turn(c10::DeviceIndex device, IfIdle) : device_(device) {
    const auto status = openreg_stream_try_begin_current(device, &stream_);
    if (status != OPENREG_NOT_READY) {
      check(status);
      begin();
    }
  }

  ~Turn() {
    if (held_) [[likely]] {
      --depth_;
      openreg_stream_end_inline(device_, stream_);
    }
  }

  Turn(const Turn &) = delete;
  Turn &operator=(const Turn &) = delete;

  bool is_held() const { return held_; }

  // Raises what work of the device failed with and nobody was told: where values go to the host.
  void raise_failures() const { check(openreg_stream_synchronize(device_, stream_)); }

  // Waits for the turn, if it is not held.
  void wait();

  // Whether this thread is within a turn: work that it starts then is part of it.
  static bool any() { return depth_ > 0; }

private:
  void begin() {
    held_ = true;
    ++depth_;
  }

  static constinit thread_local int depth_ __attribute__((tls_model("initial-exec")));

  c10::DeviceIndex device_;
  int stream_ = OPENREG_STREAM_DEFAULT;
  bool held_ = false;
};

// Gives work to a stream's worker, which owns `data`: also if this raises what the function failed
// with, where launches are waited for. Waits for room in the stream's queue as Python wants it
// (below).
void launch_on_stream(c10::DeviceIndex device, int stream, openreg_stream_function function,
                      void *data);

// How often this thread has done so: whether a launch was queued shows in nothing else.
extern constinit thread_local int64_t queued_by_this_thread
    __attribute__((tls_model("initial-exec")));

// What a node of a graph is called: the operator that this thread launched last.
const char *captured_name();

// Does work that returns nothing, as it cannot fail, or a status.
template <class Work> openreg_status do_work(Work &work) {
  if constexpr (std::is_void_v<decltype(work())>) {
    work();
    return OPENREG_OK;
  } else {
    return work();
  }
}

// Makes work a node of the graph that a stream captures: it is owned by the graph, and done
// whenever the graph is replayed.
template <class Work>
void capture_on_stream(c10::DeviceIndex device, int stream, const char *name, Work work) {
  auto owned = std::make_unique<Work>(std::move(work));
  const openreg_graph_work node{
      .run = [](void *data) { return do_work(*static_cast<Work *>(data)); },
      .destroy = [](void *data) { delete static_cast<Work *>(data); },
      .data = owned.get(),
      .name = name};
  (void)owned.release(); // the graph's, whether or not it has room
  check(openreg_capture_add(device, stream, &node));
}

// Queues such work on the device's current stream. It is copied, knows addresses of device memory
// and keeps none of it alive, as a kernel on a GPU. Work that a stream captures is done often.
template <class Work> void queue_on_stream(c10::DeviceIndex device, Work work) {
  const auto run = [](void *data) {
    return do_work(*std::unique_ptr<Work>(static_cast<Work *>(data)));
  };
  int stream = OPENREG_STREAM_DEFAULT;
  check(openreg_stream_current(device, &stream));
  if (openreg_stream_is_capturing(device, stream)) [[unlikely]] {
    capture_on_stream(device, stream, captured_name(), std::move(work));
    return;
  }
  // Whoever runs it frees it, which may be before a failing launch returns: the caller never does.
  launch_on_stream(device, stream, run, std::make_unique<Work>(std::move(work)).release());
}

// Does such work at once if the stream is idle, else behind what it has to do, without waiting.
template <class Work> void run_on_stream(c10::DeviceIndex device, Work work) {
  if (const Turn turn(device, Turn::kIfIdle); turn.is_held()) {
    check(do_work(work));
    return;
  }
  queue_on_stream(device, std::move(work));
}

// While it lives, this thread does not keep Python's other threads from running: who may have to
// wait, be it for room in a stream's queue, may wait for one of them.
class WithoutGil {
public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil &) = delete;
  WithoutGil &operator=(const WithoutGil &) = delete;

private:
  void *state_ = nullptr; // of the thread; null when it did not hold the GIL
};

// Waiting as Python wants it: without the GIL, and ended by Ctrl-C. `stream` of a device, or all of
// its streams, or an event. They raise what the work failed with.
void wait_for_stream(c10::DeviceIndex device, int stream);
void wait_for_device(c10::DeviceIndex device);
void wait_for_event(const openreg_event *event);

} // namespace openreg
