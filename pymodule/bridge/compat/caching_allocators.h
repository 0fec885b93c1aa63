// Settings and statistics of PyTorch's caching allocators that differ between releases.
#pragma once

#include <c10/core/AllocatorConfig.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/version.h>

#include <limits>
#include <map>

namespace openreg {

// Whether the statistics of pinned memory count a reused block with its own size.
inline constexpr bool kPinnedCountsWholeBlocks = TORCH_VERSION_MINOR >= 14;

// Sizes of pinned memory, in bytes. Larger requests are not rounded up to a power of two, and
// larger blocks are not cached. 2.12 has no such settings.
struct PinnedThresholds {
  bool can_be_set = TORCH_VERSION_MINOR >= 13;
  size_t max_round_bytes = std::numeric_limits<size_t>::max();
  size_t max_cached_bytes = std::numeric_limits<size_t>::max();
};

inline PinnedThresholds pinned_thresholds() {
  PinnedThresholds thresholds;
#if TORCH_VERSION_MINOR >= 13
  using c10::CachingAllocator::AcceleratorAllocatorConfig;
  thresholds.max_round_bytes = AcceleratorAllocatorConfig::pinned_max_round_threshold();
  thresholds.max_cached_bytes = AcceleratorAllocatorConfig::pinned_max_cached_size();
#endif
  return thresholds;
}

// The reserved bytes of each private pool; nullptr in 2.12, whose statistics do not have them.
template <class DeviceStats> auto *reserved_by_private_pools([[maybe_unused]] DeviceStats &stats) {
#if TORCH_VERSION_MINOR >= 13
  return &stats.reserved_bytes_by_private_pools;
#else
  using Pools = std::map<c10::MempoolId_t, c10::CachingAllocator::StatArray>;
  return static_cast<Pools *>(nullptr);
#endif
}

} // namespace openreg
