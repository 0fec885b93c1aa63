#include "streams/sync_debug.h"

#include <c10/util/Exception.h>

#include <string>

#include "core/status.h"

namespace openreg {

std::atomic<SyncDebugMode> sync_debug_mode = SyncDebugMode::kDefault;

// The sentence is CUDA's.
void report_sync() {
  const auto sentence = std::string("called a synchronizing ") + platform_name() + " operation";
  TORCH_CHECK(sync_debug_mode.load() != SyncDebugMode::kError, sentence);
  TORCH_WARN(sentence);
}

void note_sync(c10::DeviceIndex device) {
  int stream = OPENREG_STREAM_DEFAULT;
  check(openreg_stream_current(device, &stream));
  note_sync(c10::Stream(c10::Stream::UNSAFE, {kDeviceType, device}, stream));
}

} // namespace openreg
