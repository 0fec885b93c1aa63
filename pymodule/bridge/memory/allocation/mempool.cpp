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

// Pools whose allocators are Python's: memory of them may outlive the pool.
void keep_for_good(const std::shared_ptr<PluggableAllocator> &allocator) {
  static auto *const kept = new std::vector<std::shared_ptr<PluggableAllocator>>; // under the GIL
  kept->push_back(allocator);
}

uint64_t create(PluggableAllocator *allocator, bool use_on_oom, bool no_split) {
  unsigned how = 0;
  if (use_on_oom) {
    how |= OPENREG_MEMPOOL_USE_ON_OOM;
  }
  if (no_split) {
    how |= OPENREG_MEMPOOL_NO_SPLIT;
  }
  uint64_t id = 0;
  if (allocator == nullptr) {
    check(openreg_mempool_create(how, nullptr, &id));
  } else {
    const auto source = allocator->source();
    check(openreg_mempool_create(how, &source, &id));
  }
  return id;
}

// What this thread began and has not ended, in order, and the pool that was the thread's before.
struct Begun {
  int device;
  uint64_t pool;
};
std::vector<Begun> &begun_by_thread() {
  static thread_local std::vector<Begun> begun;
  return begun;
}

uint64_t current_of(int device) {
  const auto &begun = begun_by_thread();
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
    keep_for_good(allocator_);
  }
}

MemPool::~MemPool() {
  // Nothing to be told of a failure: what could not be given back now is by emptying the cache.
  const WithoutGil no_gil; // queued work may still write to the memory
  const RecordedCall recorded(RecordedCall::kOther);
  (void)openreg_mempool_release(id_);
  (void)openreg_mempool_empty(id_);
}

uint64_t make_graph_pool_handle() {
  uint64_t pool = 0;
  check(openreg_mempool_name(&pool));
  return pool;
}

void begin_allocate_to_pool(int device, uint64_t pool) {
  check(openreg_mempool_retain(pool));
  const auto status = openreg_mempool_set_current(device, pool);
  if (status != OPENREG_OK) {
    (void)openreg_mempool_release(pool);
  }
  check(status);
  begun_by_thread().push_back({device, pool});
}

void end_allocate_to_pool(int device, uint64_t pool) {
  auto &begun = begun_by_thread();
  for (size_t i = begun.size(); i-- > 0;) {
    if (begun[i].device == device && begun[i].pool == pool) {
      begun.erase(begun.begin() + static_cast<std::ptrdiff_t>(i));
      check(openreg_mempool_set_current(device, current_of(device)));
      return;
    }
  }
  TORCH_CHECK(false, "openreg: this thread does not allocate to pool (0, ", pool, ") on device ",
              device, ": expected a pool that it began to allocate to");
}

void release_pool(uint64_t pool) {
  check(openreg_mempool_release(pool));
}

} // namespace openreg
