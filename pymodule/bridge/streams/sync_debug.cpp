#include "streams/sync_debug.h"

#include <c10/util/Exception.h>

namespace openreg {

std::atomic<SyncDebugMode> sync_debug_mode = SyncDebugMode::kDefault;

// In CUDA's words.
void report_sync() {
  constexpr const char *kSentence = "called a synchronizing openreg operation";
  TORCH_CHECK(sync_debug_mode.load() != SyncDebugMode::kError, kSentence);
  TORCH_WARN(kSentence);
}

} // namespace openreg
