#include "stand_ins/c10_cuda/snapshot.h"

#include <torch/version.h>

#include <algorithm>
#include <span>

#include "stand_ins/c10_cuda/raw_memory.h"
#include "stand_ins/c10_cuda/registered.h"
#include "allocator/allocator.h"
#include "bridge/core/status.h"

namespace openreg {

namespace {

using c10::CachingDeviceAllocator::BlockInfo;
using c10::CachingDeviceAllocator::SegmentInfo;
using c10::CachingDeviceAllocator::TraceEntry;
using c10::cuda::CUDACachingAllocator::AllocatorConfigInfo;
using c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig;
using c10::cuda::CUDACachingAllocator::SnapshotInfo;
using c10::cuda::CUDACachingAllocator::StreamSegmentSize;

class Snapshot {
public:
  explicit Snapshot(int device) { check(openreg_memory_take_snapshot(device, &taken_)); }
  ~Snapshot() { openreg_memory_free_snapshot(&taken_); }
  Snapshot(const Snapshot &) = delete;
  Snapshot &operator=(const Snapshot &) = delete;

  std::span<const openreg_segment_info> segments() const {
    return {taken_.segments, taken_.segment_count};
  }
  std::span<const openreg_block_info> blocks() const { return {taken_.blocks, taken_.block_count}; }
  std::span<const openreg_block_info> blocks_of(const openreg_segment_info &segment) const {
    return blocks().subspan(segment.first_block, segment.block_count);
  }

private:
  openreg_memory_snapshot taken_ = {};
};

cudaStream_t handle_of(int device, int stream) {
  return reinterpret_cast<cudaStream_t>(openreg_stream_make_handle(device, stream));
}

BlockInfo to_block(int device, const openreg_block_info &from) {
  BlockInfo to;
  to.size = from.bytes;
  to.requested_size = from.requested_bytes;
  to.allocated = from.state == openreg_block_info::OPENREG_BLOCK_ALLOCATED;
  to.active = from.state != openreg_block_info::OPENREG_BLOCK_FREE;
  if (to.active) {
    to.context_when_allocated = registered_history().block_context(device, from.address);
  }
  return to;
}

SegmentInfo to_segment(int device, const openreg_segment_info &from,
                       std::span<const openreg_block_info> blocks) {
  SegmentInfo to;
  to.device = static_cast<c10::DeviceIndex>(device);
  to.address = from.address;
  to.total_size = from.bytes;
  to.requested_size = from.requested_bytes;
  to.allocated_size = from.allocated_bytes;
  to.active_size = from.active_bytes;
  to.stream = handle_of(device, from.stream);
  to.is_large = from.kind == OPENREG_POOL_LARGE;
  to.is_expandable = from.is_expandable;
  to.owner_private_pool_id = {0, from.mempool};
  for (const auto &block : blocks) {
    to.blocks.push_back(to_block(device, block));
  }
  return to;
}

AllocatorConfigInfo settings() {
  openreg_memory_settings from;
  openreg_memory_get_settings(&from);
  AllocatorConfigInfo to = {};
  to.garbage_collection_threshold = from.garbage_collection_threshold;
  to.max_split_size = from.max_split_bytes;
  to.pinned_num_register_threads = CUDAAllocatorConfig::pinned_num_register_threads();
  to.expandable_segments = from.expandable_segments;
  to.release_lock_on_malloc = CUDAAllocatorConfig::release_lock_on_cudamalloc();
  to.pinned_use_host_register = CUDAAllocatorConfig::pinned_use_cuda_host_register();
  to.graph_capture_record_stream_reuse = CUDAAllocatorConfig::graph_capture_record_stream_reuse();
  to.last_allocator_settings = c10::CachingAllocator::getAllocatorSettings();
  to.roundup_power2_divisions.assign(std::begin(from.roundup_power2_divisions),
                                     std::end(from.roundup_power2_divisions));
#if TORCH_VERSION_MINOR >= 13
  openreg_pinned_settings pinned;
  openreg_pinned_get_settings(&pinned);
  to.max_round_threshold = pinned.max_round_bytes;
  to.max_cached_size = pinned.max_cached_bytes;
#endif
  return to;
}

} // namespace

SnapshotInfo take_snapshot(c10::MempoolId_t pool, bool with_history) {
  int count = 0;
  check(openreg_device_count(&count));
  SnapshotInfo result;
  for (int device = 0; device < count; ++device) {
    result.device_traces.push_back(with_history ? registered_history().history_of(device)
                                                : std::vector<TraceEntry>());
    const Snapshot snapshot(device);
    size_t active_bytes = 0;
    for (const auto &segment : snapshot.segments()) {
      const c10::MempoolId_t owner = {0, segment.mempool};
      if (pool == c10::MempoolId_t{0, 0} || pool == owner) {
        result.segments.push_back(to_segment(device, segment, snapshot.blocks_of(segment)));
        active_bytes += segment.active_bytes;
      }
    }
    if (with_history) {
      registered_history().note_snapshot(device, active_bytes, pool.second);
    }
  }
  result.config_metadata = settings();
  return result;
}

std::vector<StreamSegmentSize> expandable_segment_sizes(c10::DeviceIndex device) {
  const Snapshot snapshot(device);
  std::vector<StreamSegmentSize> sizes;
  for (const auto &segment : snapshot.segments()) {
    if (!segment.is_expandable) {
      continue;
    }
    const auto stream = handle_of(device, segment.stream);
    const bool is_small = segment.kind == OPENREG_POOL_SMALL;
    const auto found = std::find_if(sizes.begin(), sizes.end(), [&](const auto &size) {
      return size.stream == stream && size.is_small_pool == is_small;
    });
    if (found != sizes.end()) {
      found->total_size += segment.bytes;
    } else {
      sizes.emplace_back(stream, is_small, segment.bytes);
    }
  }
  return sizes;
}

size_t largest_free_block(c10::DeviceIndex device) {
  const Snapshot snapshot(device);
  size_t largest = 0;
  for (const auto &block : snapshot.blocks()) {
    if (block.state == openreg_block_info::OPENREG_BLOCK_FREE) {
      largest = std::max(largest, block.bytes);
    }
  }
  return largest;
}

void *segment_of(const void *address, size_t *bytes) {
  const auto *const block = require_block(address);
  const auto start = reinterpret_cast<uintptr_t>(block->address);
  const Snapshot snapshot(block->device);
  for (const auto &segment : snapshot.segments()) {
    if (start >= segment.address && start - segment.address < segment.bytes) {
      if (bytes != nullptr) {
        *bytes = segment.bytes;
      }
      return reinterpret_cast<void *>(segment.address);
    }
  }
  if (bytes != nullptr) { // memory of another process is a block of its own
    *bytes = block->bytes;
  }
  return block->address;
}

} // namespace openreg
