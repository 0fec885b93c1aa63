// Observers follow a program's use of streams, events and memory. The sanitizer is one, PyTorch's
// trace hooks (trace_hooks.h) are another. They are in one table, and a place that reports costs
// one predicted branch while the table is empty.
//
// Calls come in the program's order, whether or not a stream has work. The layers below have tables
// of their own, because they know nothing of PyTorch: the allocator reports blocks and segments to
// the memory history and the sanitizer (openreg_memory_add_observer), and streams report the times
// of their work to the profiler (device/trace.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/util/ArrayRef.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "allocator/allocator.h"
#include "core/status.h"

namespace c10 {
class OperatorHandle;
struct IValue;
} // namespace c10

namespace openreg {

struct StreamKey {
  c10::DeviceIndex device;
  int stream;
};

inline StreamKey stream_key_of(const c10::Stream &stream) {
  return {stream.device_index(), static_cast<int>(stream.id())};
}

// The creator of an event. PyTorch's trace hooks see only those of the program.
enum class EventOrigin { kProgram, kInternal };

// Each method does nothing unless an observer overrides it.
class Observer {
public:
  virtual ~Observer() = default;

  virtual void stream_created(StreamKey /*stream*/) {}

  // All work submitted to `first` so far completes before work submitted to `second` from now on.
  virtual void order(StreamKey /*first*/, StreamKey /*second*/) {}

  virtual void event_created(const openreg_event * /*event*/) {}
  virtual void record(const openreg_event * /*event*/, StreamKey /*stream*/, EventOrigin) {}
  virtual void wait(StreamKey /*stream*/, const openreg_event * /*event*/, EventOrigin) {}
  virtual void forget(const openreg_event * /*event*/, EventOrigin) noexcept {}

  // The host synchronizes, also if there is nothing to wait for.
  virtual void synchronize(const openreg_event * /*event*/, EventOrigin) {}
  virtual void synchronize(StreamKey /*stream*/) {}
  virtual void synchronize(c10::DeviceIndex /*device*/) {}

  // The host asked whether an event or a stream is done, and it is.
  virtual void found_done(const openreg_event * /*event*/) {}
  virtual void found_done(StreamKey /*stream*/) {}

  // Work that is not an operator, such as a collective. It may read uninitialized bytes, because it
  // only moves or reduces them.
  struct Work {
    std::string name;
    at::TensorList reads, writes;
    bool is_deferred; // the program has a handle to wait for it
    at::Tensor own{}; // the part of `writes` that is a copy of everything in `reads`
  };
  virtual void launch(StreamKey /*stream*/, const Work & /*work*/) {}

  // Follows one queued launch of an operator.
  class LaunchObserver {
  public:
    virtual ~LaunchObserver() = default;
    virtual void fail() = 0; // the kernel raised an error; called on the worker
  };
  // An operator's launch is queued. `arguments` are what its kernel gets. Returns null if the
  // observer does not need the outcome.
  virtual std::unique_ptr<LaunchObserver> queue(StreamKey /*stream*/,
                                                const c10::OperatorHandle & /*op*/,
                                                c10::ArrayRef<c10::IValue> /*arguments*/) {
    return nullptr;
  }

  // Collects what the streams of a capture are given from now on, and reports it at each replay.
  class CaptureObserver {
  public:
    virtual ~CaptureObserver() = default;
    virtual void replay(StreamKey stream) = 0; // called on the thread that replays the graph
  };
  virtual std::unique_ptr<CaptureObserver> begin_capture(uint64_t /*capture*/) { return nullptr; }

  // A storage moves to a new block of `bytes`; the first `kept` bytes are copied.
  virtual void resize(StreamKey /*stream*/, const void * /*from*/, const void * /*to*/,
                      size_t /*kept*/, size_t /*bytes*/) {}
  // Work that is not reported writes to these tensors.
  virtual void fill(at::TensorList /*tensors*/) {}

  // The calling thread has allocated a block.
  virtual void allocated(const openreg_block & /*block*/) {}
  // The calling thread is about to free a block.
  virtual void begin_free(const openreg_block & /*block*/) {}
  // A stream other than the owner uses the block at `address`, as record_stream() says.
  virtual void record_use(const void * /*address*/, StreamKey /*stream*/) {}

  // The calling thread has allocated pinned host memory, or is about to free it.
  virtual void pinned(const void * /*address*/, size_t /*bytes*/) {}
  virtual void unpin(const void * /*address*/) {}
  // A stream's work is about to access host memory, and has done so.
  virtual void begin_host_access(const void * /*address*/, size_t /*bytes*/, bool /*writes*/) {}
  virtual void end_host_access(const void * /*address*/, size_t /*bytes*/, bool /*writes*/) {}
  // Writes to host memory instead of a stream's work. Returns false if the work must do it.
  virtual bool write_to_host(void * /*to*/, const void * /*from*/, size_t /*bytes*/) {
    return false;
  }
};

// The table of observers. An observer must live as long as the process: another thread may still
// call it after it was removed.
void add_observer(Observer &observer);
void remove_observer(Observer &observer);

inline constexpr size_t kMostObservers = 4;
extern std::array<std::atomic<Observer *>, kMostObservers> observers; // null: a free slot
extern std::atomic<size_t> observer_count;

inline bool has_observers() {
  return observer_count.load(std::memory_order_acquire) != 0 || c10::impl::GPUTrace::haveState;
}

// Adds PyTorch's trace hooks once the program has enabled them.
void add_enabled_trace_hooks();

// Calls `report` with each observer.
template <class Report> void notify_observers(Report report) {
  if (!has_observers()) [[likely]] {
    return;
  }
  add_enabled_trace_hooks();
  for (const auto &slot : observers) {
    if (auto *const observer = slot.load(std::memory_order_acquire); observer != nullptr) {
      report(*observer);
    }
  }
}

// Marks an access of a stream's work to these bytes, if they are host memory, while it lives.
class HostAccess {
public:
  HostAccess(const void *address, size_t bytes, bool writes)
      : address_(address), bytes_(bytes), writes_(writes) {
    notify_observers([this](Observer &observer) {
      was_observed_ = true;
      observer.begin_host_access(address_, bytes_, writes_);
    });
  }
  ~HostAccess() {
    if (was_observed_) [[unlikely]] {
      notify_observers(
          [this](Observer &observer) { observer.end_host_access(address_, bytes_, writes_); });
    }
  }
  HostAccess(const HostAccess &) = delete;
  HostAccess &operator=(const HostAccess &) = delete;

private:
  const void *address_;
  size_t bytes_;
  bool writes_;
  bool was_observed_ = false; // false if there was no observer at the beginning
};

// While one lives, the sanitizer ignores the calling thread, which does no work of the
// program.
class ObserverPause {
public:
  ObserverPause() { ++depth_; }
  ~ObserverPause() { --depth_; }
  ObserverPause(const ObserverPause &) = delete;
  ObserverPause &operator=(const ObserverPause &) = delete;

  static bool any() { return depth_ > 0; }

private:
  static constinit thread_local int depth_ __attribute__((tls_model("initial-exec")));
};

} // namespace openreg
