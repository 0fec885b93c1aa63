// ATen/cuda/MemPool.h: memory pools, as torch.cuda.MemPool has them.

#include <ATen/cuda/CUDAGraph.h>
#include <ATen/cuda/MemPool.h>
#include <c10/cuda/CUDAGuard.h>

#include <vector>

#include "allocator/allocator.h"
#include "bridge/core/status.h"
#include "stand_ins/torch_cuda/host_functions.h"

namespace at::cuda {

namespace {

using c10::cuda::CUDACachingAllocator::CUDAAllocator;

cudaStream_t handle_of(int device, int stream) {
  return reinterpret_cast<cudaStream_t>(openreg_stream_make_handle(device, stream));
}

// Keeps the allocator alive: its memory may outlive the pool.
openreg_custom_allocator custom_allocator(std::shared_ptr<CUDAAllocator> allocator) {
  auto *const kept = new std::shared_ptr<CUDAAllocator>(std::move(allocator));
  return {.allocate =
              [](void *context, size_t bytes, int device, int stream) {
                const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
                return static_cast<CUDAAllocator *>(context)->raw_alloc_with_stream(
                    bytes, handle_of(device, stream));
              },
          .free = [](void *context, void *address, size_t, int,
                     int) { static_cast<CUDAAllocator *>(context)->raw_delete(address); },
          .context = kept->get()};
}

uint64_t create_pool(std::shared_ptr<CUDAAllocator> allocator, bool use_on_oom, bool no_split) {
  const unsigned flags = (use_on_oom ? unsigned{OPENREG_MEMPOOL_USE_ON_OOM} : 0) |
                         (no_split ? unsigned{OPENREG_MEMPOOL_NO_SPLIT} : 0);
  uint64_t pool = 0;
  if (allocator == nullptr) {
    openreg::check(openreg_mempool_create(flags, nullptr, &pool));
  } else {
    const auto custom = custom_allocator(std::move(allocator));
    openreg::check(openreg_mempool_create(flags, &custom, &pool));
  }
  return pool;
}

} // namespace

MempoolId_t graph_pool_handle() {
  return MemPool::graph_pool_handle();
}

// CUDA writes the ids of programs and of PyTorch in two different places. Here one counter has
// both.
MempoolId_t MemPool::graph_pool_handle(bool) {
  uint64_t pool = 0;
  openreg::check(openreg_mempool_allocate_id(&pool));
  return {0, pool};
}

MemPool::MemPool(std::shared_ptr<CUDAAllocator> allocator, bool is_user_created, bool use_on_oom,
                 bool no_split)
    : is_user_created_(is_user_created), device_(c10::cuda::current_device()) {
  openreg::host_functions(); // raises an error outside of CUDA mode
  openreg::check(openreg_initialize());
  id_ = {0, create_pool(std::move(allocator), use_on_oom, no_split)};
}

// Allocated blocks stay valid. What cannot be released now is released when the cache is emptied.
MemPool::~MemPool() {
  (void)openreg_mempool_release(id_.second);
  (void)openreg_mempool_empty(id_.second);
}

MempoolId_t MemPool::id() {
  return id_;
}

int MemPool::use_count() {
  return static_cast<int>(openreg_mempool_use_count(id_.second));
}

c10::DeviceIndex MemPool::device() {
  return device_;
}

} // namespace at::cuda
