// Waits of the host for a device. Costs one check of a flag while nothing is recorded.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "device/device.h"
#include "profiler/memory_note.h"

namespace openreg {

// What the host waits for.
enum class Awaited : uint8_t { kDevice, kStream, kEvent };

struct HostWaitRecord {
  Awaited awaited;
  int device, stream; // the stream is the default one unless the host waits for a stream
  int32_t system_thread, thread;
  uint64_t correlation; // Kineto's number of the operator that waits; 0: none
  int64_t begin_ns, end_ns;
};

// The time for which an object of this class lives is a wait of the calling thread.
class HostWait {
public:
  HostWait(Awaited awaited, c10::DeviceIndex device, int stream = OPENREG_STREAM_DEFAULT) {
    if (records_work.load(std::memory_order_relaxed)) [[unlikely]] {
      begin(awaited, device, stream);
    }
  }
  // For the device's current stream.
  explicit HostWait(c10::DeviceIndex device) {
    if (records_work.load(std::memory_order_relaxed)) [[unlikely]] {
      begin_on_current_stream(device);
    }
  }
  ~HostWait() {
    if (record_.begin_ns != 0) [[unlikely]] {
      end();
    }
  }
  HostWait(const HostWait &) = delete;
  HostWait &operator=(const HostWait &) = delete;

private:
  void begin(Awaited awaited, int device, int stream);
  void begin_on_current_stream(c10::DeviceIndex device);
  void end() noexcept;

  HostWaitRecord record_{}; // begins at 0: nothing was recorded when it began
};

} // namespace openreg
