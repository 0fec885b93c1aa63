// Sends storages and events between processes, by the handles of the C layers.
//
// An imported storage shows the memory of the process that sent it, through a block of its own. So
// everything treats it as any device storage, except that it cannot be resized. If the same memory
// is imported twice, both imports are one storage as long as that lives.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Storage.h>

#include "core/status.h"

namespace openreg {

// Returns a handle that one process can import. The importer's current stream waits for the work
// that this process submitted to its current stream and to the stream for which the memory was
// allocated. Raises for memory that was imported from another process.
openreg_ipc_handle export_storage(const c10::Storage &storage);

// Returns the index of a handle's device in this process. The exporter may use another index.
c10::DeviceIndex device_of_handle(const openreg_ipc_handle &handle);

// Imports the storage of a handle, which must have `bytes` on `device`, for the current stream.
c10::Storage import_storage(c10::DeviceIndex device, size_t bytes,
                            const openreg_ipc_handle &handle);

// Releases, on all devices, the memory that other processes no longer hold.
void collect_shared_memory();

// An event that was never recorded counts as reached in both processes.
openreg_ipc_handle export_event(c10::Event &event);

// Makes an event that was never recorded represent the event of a handle, on `device`.
void import_event(c10::Event &event, c10::DeviceIndex device, const openreg_ipc_handle &handle);

// PyTorch creates a backend's event on its first recording. While this exists, the first recording
// on this thread takes `event` instead, and records nothing.
class PendingEventImport {
public:
  explicit PendingEventImport(openreg_event *event) : event_(event) { current_ = this; }
  ~PendingEventImport() {
    current_ = nullptr;
    openreg_event_destroy(event_);
  }
  PendingEventImport(const PendingEventImport &) = delete;
  PendingEventImport &operator=(const PendingEventImport &) = delete;

  // Returns the pending event and its ownership, or null.
  static openreg_event *take() {
    return current_ != nullptr ? std::exchange(current_->event_, nullptr) : nullptr;
  }

private:
  static constinit thread_local PendingEventImport *current_
      __attribute__((tls_model("initial-exec")));
  openreg_event *event_;
};

} // namespace openreg
