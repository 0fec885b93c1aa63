#include "distributed/nccl_memory.h"

#include <c10/util/Exception.h>

#include <charconv>
#include <cstdlib>
#include <string>

#include "core/status.h"
#include "tensor/known_values.h"

namespace openreg {

namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kLargestMiB = kMiB; // one TiB

uint64_t default_mib(int ranks) {
  return ranks < 2 ? 388 : ranks == 2 ? 544 : 688;
}

// What the device counts. In a dry run the estimate is only reported, because it is too much for
// every communicator after the first, and a job would not fit for that reason.
uint64_t counted_bytes(int ranks) {
  const openreg_config *config = nullptr;
  check(openreg_config_get(&config));
  const bool is_reported = is_dry() && std::getenv("OPENREG_NCCL_MEMORY") == nullptr;
  return config->gpu_overhead && !is_reported ? estimate_nccl_memory(ranks) : 0;
}

} // namespace

uint64_t estimate_nccl_memory(int ranks) {
  const char *const chosen = std::getenv("OPENREG_NCCL_MEMORY");
  const std::string text = chosen == nullptr ? "" : chosen;
  if (text.empty()) {
    return default_mib(ranks) * kMiB;
  }
  uint64_t mib = 0;
  const auto *const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, mib);
  TORCH_CHECK_WITH(DistBackendError, error == std::errc() && rest == end && mib <= kLargestMiB,
                   "openreg: OPENREG_NCCL_MEMORY=", text, ": expected a number of MiB up to ",
                   kLargestMiB);
  return mib * kMiB;
}

NcclMemory::NcclMemory(c10::DeviceIndex device, int ranks)
    : device_(device), ranks_(ranks), bytes_(counted_bytes(ranks)) {
  reserve();
}

NcclMemory::~NcclMemory() {
  suspend();
}

void NcclMemory::reserve() {
  if (bytes_ > 0 && openreg_ledger_reserve(device_, bytes_) != OPENREG_OK) {
    TORCH_CHECK_WITH(DistBackendError, false, openreg_last_error(),
                     "; with OPENREG_GPU_OVERHEAD=1 a communicator of ", ranks_,
                     " ranks takes an estimated ", bytes_ / kMiB,
                     " MiB, which OPENREG_NCCL_MEMORY changes");
  }
}

void NcclMemory::suspend() {
  const std::lock_guard lock(mutex_);
  if (!is_suspended_.exchange(true) && bytes_ > 0) {
    openreg_ledger_release(device_, bytes_);
  }
}

void NcclMemory::resume() {
  const std::lock_guard lock(mutex_);
  if (is_suspended_) {
    reserve();
    is_suspended_ = false;
  }
}

} // namespace openreg
