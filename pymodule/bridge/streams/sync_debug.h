// set_sync_debug_mode: what makes the host wait for a device warns, or raises.
#pragma once

#include <c10/core/Stream.h>

#include <atomic>

#include "streams/gpu_trace.h"

namespace openreg {

enum class SyncDebugMode : int { kDefault, kWarn, kError };

extern std::atomic<SyncDebugMode> sync_debug_mode; // of the process, as on CUDA

// Says so, in the way that the mode wants.
void report_sync();

// Whether they are reported, or told to who watches.
inline bool syncs_are_reported() {
  return sync_debug_mode.load(std::memory_order_relaxed) != SyncDebugMode::kDefault;
}
inline bool syncs_are_noted() {
  return syncs_are_reported() || c10::impl::GPUTrace::get_trace() != nullptr;
}

// Before the host waits for a stream.
inline void note_sync(const c10::Stream &stream) {
  if (syncs_are_reported()) [[unlikely]] {
    report_sync();
  }
  trace_stream_synchronization(stream);
}

// Before it waits for the device's current stream.
void note_sync(c10::DeviceIndex device);

} // namespace openreg
