// c10/cuda/CUDACachingAllocator.h: the caching allocator of openreg behind CUDA's interface.
//
// Memory comes from the allocator that the extension module registered, so that a block is the same
// whether a tensor, torch.cuda or a C++ program allocates it. Addresses are those of the device
// view: only copies and launches may access the memory.

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>

#include "stand_ins/c10_cuda/pools.h"
#include "stand_ins/c10_cuda/raw_memory.h"
#include "stand_ins/c10_cuda/registered.h"
#include "stand_ins/c10_cuda/sharing.h"
#include "stand_ins/c10_cuda/snapshot.h"
#include "allocator/allocator.h"
#include "bridge/core/status.h"
#include "stand_ins/c10_cuda/trackers.h"

namespace c10 {
C10_DEFINE_REGISTRY(FreeCudaMemoryCallbacksRegistry, FreeMemoryCallback)
} // namespace c10

namespace c10::cuda::CUDACachingAllocator {

namespace {

using openreg::check;
using openreg::registered_allocator;

constexpr const char *kAnnotations = "record annotations with torch.profiler.record_function";
constexpr const char *kRejections = "attach an observer of failed requests with "
                                    "attachOutOfMemoryObserver";
constexpr const char *kPoolFlags = "a memory pool gets its flags when it is created: create it "
                                   "with at::cuda::MemPool or torch.cuda.MemPool";

// Raises an error for a function that C++ programs cannot use. `reason` is the end of the sentence.
[[noreturn]] void refuse(const char *function, const char *reason) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "openreg: c10::cuda::CUDACachingAllocator::", function,
                              " is not supported: ", reason);
}

// Runs the callbacks that programs registered to free memory. Returns whether one did.
bool run_free_memory_callbacks() {
  bool has_freed = false;
  for (const auto &name : FreeCudaMemoryCallbacksRegistry()->Keys()) {
    has_freed |= FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
  }
  return has_freed;
}

template <class Allocate> auto allocate_or_free_memory(Allocate allocate) {
  try {
    return allocate();
  } catch (const c10::OutOfMemoryError &) {
    if (!run_free_memory_callbacks()) {
      throw;
    }
  }
  return allocate();
}

class OpenregAllocator final : public CUDAAllocator {
public:
  // ---- memory -----------------------------------------------------------------------------------

  DataPtr allocate(size_t bytes) override {
    return allocate_or_free_memory([bytes] { return registered_allocator().allocate(bytes); });
  }

  DeleterFnPtr raw_deleter() const override { return registered_allocator().raw_deleter(); }

  void *raw_alloc(size_t nbytes) override {
    return allocate_or_free_memory([nbytes] { return openreg::allocate_raw(nbytes); });
  }

  // For the stream on its own device, as PyTorch's allocator does: the default stream belongs to
  // the current device.
  void *raw_alloc_with_stream(size_t nbytes, cudaStream_t stream) override {
    int device = 0;
    C10_CUDA_CHECK(cudaStreamGetDevice(stream, &device));
    const auto found = getStreamFromExternal(stream, static_cast<DeviceIndex>(device));
    const CUDAStreamGuard guard(found);
    return raw_alloc(nbytes);
  }

  void raw_delete(void *ptr) override { openreg::free_raw(ptr); }

  void copy_data(void *dest, const void *src, size_t count) const override {
    registered_allocator().copy_data(dest, src, count);
  }

  using CUDAAllocator::recordStream;
  void recordStream(const DataPtr &ptr, CUDAStream stream) override {
    registered_allocator().recordStream(ptr, stream.unwrap());
  }

  void *getBaseAllocation(void *ptr, size_t *size) override {
    return openreg::segment_of(ptr, size);
  }

  // ---- the cache --------------------------------------------------------------------------------

  void init(int) override {} // a device is initialized when it is first used
  bool initialized() override { return openreg_is_initialized(); }
  std::string name() override { return "native"; }

  void emptyCache(MempoolId_t mempool_id) override {
    registered_allocator().emptyCache(mempool_id);
  }

  void enable(bool value) override {
    openreg_memory_settings settings;
    openreg_memory_get_settings(&settings);
    settings.is_cache_off = !value;
    check(openreg_memory_set_settings(&settings));
  }

  bool isEnabled() const override {
    openreg_memory_settings settings;
    openreg_memory_get_settings(&settings);
    return !settings.is_cache_off;
  }

  double getMemoryFraction(DeviceIndex device) override {
    double fraction = 1;
    check(openreg_memory_get_fraction(device, &fraction));
    return fraction;
  }

  void setMemoryFraction(double fraction, DeviceIndex device) override {
    TORCH_CHECK(0 <= fraction && fraction <= 1, "invalid fraction:", fraction,
                ". Please set within [0, 1].");
    check(openreg_memory_set_fraction(device, fraction));
  }

  // ---- statistics -------------------------------------------------------------------------------

  CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    return registered_allocator().getDeviceStats(device);
  }

  void resetAccumulatedStats(DeviceIndex device) override {
    registered_allocator().resetAccumulatedStats(device);
  }

  void resetPeakStats(DeviceIndex device) override {
    registered_allocator().resetPeakStats(device);
  }

  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    return registered_allocator().getMemoryInfo(device);
  }

  // `largestBlock` is an estimate of the caller on entry, or 0.
  void cacheInfo(DeviceIndex device, size_t *largestBlock) override {
    if (*largestBlock == 0) {
      *largestBlock = getMemoryInfo(device).first;
    }
    *largestBlock = std::max(*largestBlock, openreg::largest_free_block(device));
  }

  std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override {
    return openreg::expandable_segment_sizes(device);
  }

  SnapshotInfo snapshot(MempoolId_t mempool_id, bool include_traces) override {
    return openreg::take_snapshot(mempool_id, include_traces);
  }

  void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override {
    openreg::add_tracker(std::move(tracker));
  }

  // ---- memory pools -----------------------------------------------------------------------------

  // PyTorch's callers choose streams with `filter`: those of the calling thread, or of a capture.
  // Here the calling thread's allocations go to the pool, on all streams of the device.
  void beginAllocateToPool(DeviceIndex device, MempoolId_t mempool_id,
                           std::function<bool(cudaStream_t)>) override {
    openreg::begin_pool(device, mempool_id);
  }

  void endAllocateToPool(DeviceIndex device, MempoolId_t mempool_id) override {
    openreg::end_pool(device, mempool_id);
  }

  void releasePool(DeviceIndex, MempoolId_t mempool_id) override {
    check(openreg_mempool_release(openreg::pool_number(mempool_id)));
  }

  int getPoolUseCount(DeviceIndex, MempoolId_t mempool_id) override {
    return static_cast<int>(openreg_mempool_use_count(openreg::pool_number(mempool_id)));
  }

  void createOrIncrefPool(DeviceIndex, MempoolId_t mempool_id,
                          std::shared_ptr<CUDAAllocator> allocator) override {
    if (allocator != nullptr) {
      refuse("createOrIncrefPool with an allocator", "create the pool with at::cuda::MemPool");
    }
    check(openreg_mempool_retain(openreg::pool_number(mempool_id)));
  }

  void setUseOnOOM(DeviceIndex, MempoolId_t, bool) override { refuse("setUseOnOOM", kPoolFlags); }
  void setNoSplit(DeviceIndex, MempoolId_t) override { refuse("setNoSplit", kPoolFlags); }

  bool
  checkPoolLiveAllocations(DeviceIndex device, MempoolId_t mempool_id,
                           const std::unordered_set<void *> &expected_live_allocations) override {
    return openreg::pool_has_exactly(device, mempool_id, expected_live_allocations);
  }

  std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t id) override {
    return openreg::take_checkpoint(device, id);
  }

  CheckpointDelta setCheckpointPoolState(DeviceIndex,
                                         std::shared_ptr<AllocatorState> pps) override {
    TORCH_CHECK(pps != nullptr, "openreg: setCheckpointPoolState was given no state");
    return openreg::restore_checkpoint(*pps);
  }

  // ---- other devices and processes --------------------------------------------------------------

  void enablePeerAccess(DeviceIndex dev, DeviceIndex dev_to_access) override {
    const CUDAGuard guard(dev);
    const auto error = cudaDeviceEnablePeerAccess(dev_to_access, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
      (void)cudaGetLastError();
    } else {
      C10_CUDA_CHECK(error);
    }
  }

  cudaError_t memcpyAsync(void *dst, int dstDevice, const void *src, int srcDevice, size_t count,
                          cudaStream_t stream, bool p2p_enabled) override {
    return p2p_enabled ? cudaMemcpyAsync(dst, src, count, cudaMemcpyDeviceToDevice, stream)
                       : cudaMemcpyPeerAsync(dst, dstDevice, src, srcDevice, count, stream);
  }

  ShareableHandle shareIpcHandle(void *ptr) override { return openreg::export_memory(ptr); }

  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return openreg::import_memory(handle);
  }

  // ---- the history and observers ----------------------------------------------------------------

  void recordHistory(bool enabled, CreateContextFn context_recorder, size_t alloc_trace_max_entries,
                     RecordContext when, bool clearHistory,
                     const std::vector<std::string> &skip_actions) override {
    openreg::registered_history().record_history({.enabled = enabled,
                                                  .gather = context_recorder,
                                                  .max_entries = alloc_trace_max_entries,
                                                  .stacks = when,
                                                  .clear = clearHistory,
                                                  .skipped_actions = skip_actions});
  }
  bool isHistoryEnabled() override { return openreg::registered_history().is_history_on(); }

  std::shared_ptr<GatheredContext> getContextForPointer(const void *ptr) override {
    const auto *const block = openreg::require_block(ptr);
    return openreg::registered_history().block_context(block->device,
                                                       reinterpret_cast<uintptr_t>(block->address));
  }

  void setUserMetadata(const std::string &metadata) override {
    openreg::registered_history().set_metadata(metadata);
  }
  std::string getUserMetadata() override { return openreg::registered_history().metadata(); }

  void attachOutOfMemoryObserver(OutOfMemoryObserver observer) override {
    openreg::registered_history().attach_observer(std::move(observer));
  }

  void recordAnnotation(const std::vector<std::pair<std::string, std::string>> &) override {
    refuse("recordAnnotation", kAnnotations);
  }
  void attachOomRejectionObserver(OomRejectionObserver) override {
    refuse("attachOomRejectionObserver", kRejections);
  }
};

OpenregAllocator the_allocator;

} // namespace

std::atomic<CUDAAllocator *> allocator = &the_allocator;

} // namespace c10::cuda::CUDACachingAllocator
