// Inline work: the calling thread does a stream's work itself, and functions that queue work
// instead.
//
// Code that touches device memory on the calling thread holds an InlineGuard on the current stream.
// Its accesses then come after all work submitted to the stream before and before all later work.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <type_traits>
#include <utility>

#include "core/status.h"
#include "device/capture.h"

namespace openreg {

class InlineGuard {
public:
  // Waits until the stream's earlier work has finished. Raises that work's error, if it failed.
  explicit InlineGuard(c10::DeviceIndex device) : InlineGuard(device, kIfIdle) {
    if (!held_) [[unlikely]] {
      wait();
    }
  }

  // Takes the stream only if it is idle or this thread already holds it. Check is_held().
  enum IfIdle { kIfIdle };
  InlineGuard(c10::DeviceIndex device, IfIdle) : device_(device) {
    const auto status = openreg_stream_try_begin_current(device, &stream_);
    if (status != OPENREG_NOT_READY) {
      check(status);
      begin();
    }
  }

  ~InlineGuard() {
    if (held_) [[likely]] {
      --depth_;
      openreg_stream_end_inline(device_, stream_);
    }
  }

  InlineGuard(const InlineGuard &) = delete;
  InlineGuard &operator=(const InlineGuard &) = delete;

  bool is_held() const { return held_; }

  // Raises the device's pending error. Call it before values of the device reach the host.
  void raise_failures() const { check(openreg_stream_synchronize(device_, stream_)); }

  // Waits until this guard holds the stream. Requires !is_held(). Raises errors of earlier work.
  void wait();

  // Whether this thread holds any guard. Work that it starts then is part of the inline work.
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

// Queues `function(data)` for the stream's worker. The worker owns `data`, even if this function
// raises. With OPENREG_LAUNCH_BLOCKING=1 it waits and raises the function's error. If the queue is
// full, it waits for room without the GIL, and Ctrl-C ends the wait.
void launch_on_stream(c10::DeviceIndex device, int stream, openreg_stream_function function,
                      void *data);

// How many times this thread has called launch_on_stream(). For tests: nothing else shows whether
// a launch was queued.
extern constinit thread_local int64_t launches_queued_by_thread
    __attribute__((tls_model("initial-exec")));

// The name for a new node of a graph: the operator that this thread launched last.
const char *captured_name();

// Calls work that returns a status, or void if it cannot fail.
template <class Work> openreg_status do_work(Work &work) {
  if constexpr (std::is_void_v<decltype(work())>) {
    work();
    return OPENREG_OK;
  } else {
    return work();
  }
}

// Adds work as a node of the graph that the stream captures. The graph owns the work and calls it
// at each replay. Raises RuntimeError if the graph cannot take it.
template <class Work>
void capture_on_stream(c10::DeviceIndex device, int stream, const char *name, Work work) {
  auto owned = std::make_unique<Work>(std::move(work));
  const openreg_graph_work node{
      .run = [](void *data) { return do_work(*static_cast<Work *>(data)); },
      .destroy = [](void *data) { delete static_cast<Work *>(data); },
      .data = owned.get(),
      .name = name};
  (void)owned.release(); // openreg_capture_add takes it, also on failure
  check(openreg_capture_add(device, stream, &node));
}

// Queues work on the device's current stream, or captures it. The work is copied or moved. Like a
// GPU kernel it may hold addresses of device memory but keeps no memory alive. Captured work runs
// once per replay.
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
  // The function that runs the work frees it, possibly before a failing launch returns. So the
  // caller must not.
  launch_on_stream(device, stream, run, std::make_unique<Work>(std::move(work)).release());
}

// Runs such work inline if the current stream is idle, else queues it. Does not wait for the work.
template <class Work> void run_on_stream(c10::DeviceIndex device, Work work) {
  if (const InlineGuard guard(device, InlineGuard::kIfIdle); guard.is_held()) {
    check(do_work(work));
    return;
  }
  queue_on_stream(device, std::move(work));
}

// Releases the GIL while it lives, if this thread holds it. Use it around every wait: the work may
// depend on another Python thread.
class WithoutGil {
public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil &) = delete;
  WithoutGil &operator=(const WithoutGil &) = delete;

private:
  void *state_ = nullptr; // the PyThreadState; null if the thread did not hold the GIL
};

// Wait for a stream, for all streams of a device, or for an event. They release the GIL, and Ctrl-C
// ends them. They raise the error of failed work.
void wait_for_stream(c10::DeviceIndex device, int stream);
void wait_for_device(c10::DeviceIndex device);
void wait_for_event(const openreg_event *event);

} // namespace openreg
