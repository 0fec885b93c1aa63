// Who is told what a program does with streams, events and memory, in the order in which it does
// it and whether or not the streams had anything to do. Nobody, unless the sanitizer is on: then
// each place costs one predicted branch.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>

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

struct Queue {
  c10::DeviceIndex device;
  int stream;
};

inline Queue queue_of(const c10::Stream &stream) {
  return {stream.device_index(), static_cast<int>(stream.id())};
}

class Watcher {
public:
  virtual ~Watcher() = default;

  // What was given to `first` until now is done before what is given to `second` from now.
  virtual void order(Queue first, Queue second) = 0;
  virtual void record(const openreg_event *event, Queue queue) = 0;
  virtual void wait(Queue queue, const openreg_event *event) = 0;
  virtual void forget(const openreg_event *event) noexcept = 0;

  // The host waits, or has found that there is nothing to wait for.
  virtual void synchronize(const openreg_event *event) = 0;
  virtual void synchronize(Queue queue) = 0;
  virtual void synchronize(c10::DeviceIndex device) = 0;

  // Work that is no operator is given to a queue: what it reads is moved as it is. Of deferred work
  // the program has a handle to wait for.
  struct Work {
    std::string name;
    at::TensorList reads, writes;
    bool is_deferred;
    at::Tensor own{}; // the part of what is written that is a copy of all that is read
  };
  virtual void launch(Queue queue, const Work &work) = 0;
  // An operator's launch is queued.
  class Queued {
  public:
    virtual ~Queued() = default;
    virtual void fail() = 0; // its kernel raised an error; on the worker
  };
  // `arguments` are as its kernel gets them. Null: nobody wants to know how it ends.
  virtual std::unique_ptr<Queued> queue(Queue queue, const c10::OperatorHandle &op,
                                        c10::ArrayRef<c10::IValue> arguments) = 0;
  // What the streams of a capture are given from now on, of which each replay is told again. Of a
  // replay it is told on the thread that asks for it.
  class Captured {
  public:
    virtual ~Captured() = default;
    virtual void replay(Queue queue) = 0;
  };
  virtual std::unique_ptr<Captured> begin_capture(uint64_t capture) = 0;
  // What a storage had in its memory, `kept` bytes, is moved to a new block, of `bytes`.
  virtual void resize(Queue queue, const void *from, const void *to, size_t kept, size_t bytes) = 0;
  // Memory is written to by what nobody is told of.
  virtual void fill(at::TensorList tensors) = 0;

  // The calling thread has allocated memory.
  virtual void allocated(const openreg_block &block) = 0;
  // The calling thread is about to free memory.
  virtual void begin_free() = 0;
  // The memory is used by a stream that it was not allocated for.
  virtual void record_use(const void *address, Queue queue) = 0;

  // The calling thread has allocated pinned memory of the host, or is about to free it.
  virtual void pinned(const void *address, size_t bytes) = 0;
  virtual void unpin(const void *address) = 0;
  // A stream's work is about to touch the host's memory, and has done so.
  virtual void open_host(const void *address, size_t bytes, bool writes) = 0;
  virtual void close_host(const void *address, size_t bytes, bool writes) = 0;
  // Writes to the host's memory in the place of a stream's work; false: the work is to do it.
  virtual bool write_to_host(void *to, const void *from, size_t bytes) = 0;
};

// Installed before anything is done that it should be told of, and never taken away.
extern std::atomic<Watcher *> installed_watcher;

template <class Tell> void tell_watcher(Tell tell) {
  auto *const watcher = installed_watcher.load(std::memory_order_acquire);
  if (watcher != nullptr) [[unlikely]] {
    tell(*watcher);
  }
}

// While one lives, work of a stream may touch these bytes, if they are the host's.
class OpenHost {
public:
  OpenHost(const void *address, size_t bytes, bool writes)
      : address_(address), bytes_(bytes), writes_(writes) {
    tell_watcher([this](Watcher &watcher) {
      watcher_ = &watcher;
      watcher.open_host(address_, bytes_, writes_);
    });
  }
  ~OpenHost() {
    if (watcher_ != nullptr) [[unlikely]] {
      watcher_->close_host(address_, bytes_, writes_);
    }
  }
  OpenHost(const OpenHost &) = delete;
  OpenHost &operator=(const OpenHost &) = delete;

private:
  const void *address_;
  size_t bytes_;
  bool writes_;
  Watcher *watcher_ = nullptr; // that is told; lives as long as the process
};

// While one lives, the calling thread's work is not the program's: nobody is told of it.
class Unwatched {
public:
  Unwatched() { ++depth_; }
  ~Unwatched() { --depth_; }
  Unwatched(const Unwatched &) = delete;
  Unwatched &operator=(const Unwatched &) = delete;

  static bool any() { return depth_ > 0; }

private:
  static constinit thread_local int depth_ __attribute__((tls_model("initial-exec")));
};

} // namespace openreg
