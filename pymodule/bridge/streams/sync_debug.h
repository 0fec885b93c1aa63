// set_sync_debug_mode(): operations that make the host wait for a device warn or raise.
#pragma once

#include <c10/core/Stream.h>

#include <atomic>

#include "streams/observer.h"

namespace openreg {

enum class SyncDebugMode : int { kDefault, kWarn, kError };

extern std::atomic<SyncDebugMode> sync_debug_mode; // one per process, as on CUDA

// Warns, or raises RuntimeError, as the mode says.
void report_sync();

// Whether synchronizations warn or raise.
inline bool syncs_are_reported() {
  return sync_debug_mode.load(std::memory_order_relaxed) != SyncDebugMode::kDefault;
}
// Whether they are reported or traced.
inline bool syncs_are_noted() {
  return syncs_are_reported() || c10::impl::GPUTrace::get_trace() != nullptr;
}

// Call this before the host waits for a stream.
inline void note_sync(const c10::Stream &stream) {
  if (syncs_are_reported()) [[unlikely]] {
    report_sync();
  }
  notify_observers([&](Observer &observer) { observer.synchronize(stream_key_of(stream)); });
}

// The same for the device's current stream.
void note_sync(c10::DeviceIndex device);

} // namespace openreg
