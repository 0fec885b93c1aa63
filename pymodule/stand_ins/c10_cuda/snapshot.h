// What CUDACachingAllocator reports of segments and blocks.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <vector>

namespace openreg {

// Segments and blocks of all devices, or of one pool if `pool` is not {0, 0}. Blocks have the
// stacks of the recorded history, and `with_history` adds its events.
c10::cuda::CUDACachingAllocator::SnapshotInfo take_snapshot(c10::MempoolId_t pool,
                                                            bool with_history);

// Bytes of expandable segments, by stream and pool of small or large blocks.
std::vector<c10::cuda::CUDACachingAllocator::StreamSegmentSize>
expandable_segment_sizes(c10::DeviceIndex device);

// The size of the largest free block in the cache; 0 if nothing is cached.
size_t largest_free_block(c10::DeviceIndex device);

// Returns the start of the segment that the block at `address` is in, and its size unless `bytes`
// is null.
void *segment_of(const void *address, size_t *bytes);

} // namespace openreg
