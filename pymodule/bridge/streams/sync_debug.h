// set_sync_debug_mode: what makes the host wait for a device warns, or raises.
#pragma once

#include <c10/core/Stream.h>

#include <atomic>

#include "streams/gpu_trace.h"

namespace openreg {

enum class SyncDebugMode : int { kDefault, kWarn, kError };

extern std::atomic<SyncDebugMode> sync_debug_mode; // of the process, as on CUDA

// Says so: to be called before the host waits where a program may not expect it.
void report_sync();

inline bool syncs_are_noted() {
  return sync_debug_mode.load(std::memory_order_relaxed) != SyncDebugMode::kDefault;
}

// Before the host waits for a stream.
inline void note_sync(const c10::Stream &stream) {
  if (syncs_are_noted()) [[unlikely]] {
    report_sync();
  }
  trace_stream_synchronization(stream);
}

// Before it waits for the device's current stream.
void note_sync(c10::DeviceIndex device);

} // namespace openreg
