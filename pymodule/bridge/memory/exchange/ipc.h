// Storages and events that travel between processes: conversions around the C layers' handles.
//
// A storage that came in looks at the memory of the process that sent it, through a block of its
// own, so that everything else treats it as any device storage; only that it cannot be resized.
// The same memory that comes in twice is one storage as long as that lives.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Storage.h>

#include "core/status.h"

namespace openreg {

// A handle for one process to import, which then has its current stream wait for what this one
// gave to its current stream and to the one that the memory was allocated for. Raises for memory
// that came from another process itself.
openreg_ipc_handle export_storage(const c10::Storage &storage);

// Which device of this process a handle is for; the process that made it may count it differently.
c10::DeviceIndex device_of_handle(const openreg_ipc_handle &handle);

// The storage of a handle, `bytes` large, for the current stream of `device`, on which it must be.
c10::Storage import_storage(c10::DeviceIndex device, size_t bytes,
                            const openreg_ipc_handle &handle);

// Gives back what other processes had and are done with, on all devices.
void collect_memory();

// An event that was never recorded counts as reached in both processes.
openreg_ipc_handle export_event(c10::Event &event);

// Makes an event that was never recorded stand for that of a handle, on `device`.
void import_event(c10::Event &event, c10::DeviceIndex device, const openreg_ipc_handle &handle);

// PyTorch makes a backend's event when it is recorded first. While one of these lives, this
// thread's first recording of an event takes `event` instead, and records nothing.
class EventInWaiting {
public:
  explicit EventInWaiting(openreg_event *event) : event_(event) { current_ = this; }
  ~EventInWaiting() {
    current_ = nullptr;
    openreg_event_destroy(event_);
  }
  EventInWaiting(const EventInWaiting &) = delete;
  EventInWaiting &operator=(const EventInWaiting &) = delete;

  // Null when none waits. Ownership passes.
  static openreg_event *take() {
    return current_ != nullptr ? std::exchange(current_->event_, nullptr) : nullptr;
  }

private:
  static constinit thread_local EventInWaiting *current_ __attribute__((tls_model("initial-exec")));
  openreg_event *event_;
};

} // namespace openreg
