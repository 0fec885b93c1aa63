#include "memory/allocation/mempool.h"

#include <c10/util/Exception.h>

#include <utility>
#include <vector>

#include "allocator/allocator.h"
#include "core/status.h"
#include "memory/observation/memory_history.h"
#include "streams/inline_guard.h"

namespace openreg {

namespace {

// Keeps allocators that are written in Python alive: their memory may outlive the pool.
void keep_alive(const std::shared_ptr<PluggableAllocator> &allocator) {
  static auto *const kept = new std::vector<std::shared_ptr<PluggableAllocator>>; // protected by
                                                                                  // the GIL
  kept->push_back(allocator);
}

uint64_t create(PluggableAllocator *allocator, bool use_on_oom, bool no_split) {
  unsigned flags = 0;
  if (use_on_oom) {
    flags |= OPENREG_MEMPOOL_USE_ON_OOM;
  }
  if (no_split) {
    flags |= OPENREG_MEMPOOL_NO_SPLIT;
  }
  uint64_t id = 0;
  if (allocator == nullptr) {
    check(openreg_mempool_create(flags, nullptr, &id));
  } else {
    const auto custom = allocator->custom_allocator();
    check(openreg_mempool_create(flags, &custom, &id));
  }
  return id;
}

// A pool in which this thread has begun to allocate and not ended. The thread's list is in the
// order of begin.
struct PoolScope {
  int device;
  uint64_t pool;
};
std::vector<PoolScope> &open_pool_scopes() {
  static thread_local std::vector<PoolScope> begun;
  return begun;
}

uint64_t current_of(int device) {
  const auto &begun = open_pool_scopes();
  for (size_t i = begun.size(); i-- > 0;) {
    if (begun[i].device == device) {
      return begun[i].pool;
    }
  }
  return 0;
}

} // namespace

MemPool::MemPool(std::shared_ptr<PluggableAllocator> allocator, bool use_on_oom, bool no_split)
    : id_(create(allocator.get(), use_on_oom, no_split)), allocator_(std::move(allocator)) {
  if (allocator_) {
    keep_alive(allocator_);
  }
}

MemPool::~MemPool() {
  // Errors are ignored: emptying the cache later releases what could not be released now. Without
  // the GIL, because queued work may still write to the memory.
  const WithoutGil no_gil;
  const MemoryStackScope recorded(MemoryStackScope::kOther);
  (void)openreg_mempool_release(id_);
  (void)openreg_mempool_empty(id_);
}

uint64_t allocate_graph_pool_id() {
  uint64_t pool = 0;
  check(openreg_mempool_allocate_id(&pool));
  return pool;
}

void begin_allocate_to_pool(int device, uint64_t pool) {
  check(openreg_mempool_retain(pool));
  const auto status = openreg_mempool_set_current(device, pool);
  if (status != OPENREG_OK) {
    (void)openreg_mempool_release(pool);
  }
  check(status);
  open_pool_scopes().push_back({device, pool});
}

void end_allocate_to_pool(int device, uint64_t pool) {
  auto &begun = open_pool_scopes();
  for (size_t i = begun.size(); i-- > 0;) {
    if (begun[i].device == device && begun[i].pool == pool) {
      begun.erase(begun.begin() + static_cast<std::ptrdiff_t>(i));
      check(openreg_mempool_set_current(device, current_of(device)));
      return;
    }
  }
  TORCH_CHECK(false, "openreg: this thread does not allocate to pool (0, ", pool, ") on device ",
              device, ": expected a pool for which it called begin");
}

void release_pool(uint64_t pool) {
  check(openreg_mempool_release(pool));
}

} // namespace openreg
