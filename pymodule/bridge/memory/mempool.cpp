#include "memory/mempool.h"

#include "allocator/allocator.h"
#include "memory/memory_history.h"
#include "core/status.h"
#include "streams/turn.h"

namespace openreg {

MemPool::MemPool(bool use_on_oom, bool no_split) {
  unsigned how = 0;
  if (use_on_oom) {
    how |= OPENREG_MEMPOOL_USE_ON_OOM;
  }
  if (no_split) {
    how |= OPENREG_MEMPOOL_NO_SPLIT;
  }
  check(openreg_mempool_create(how, NULL, &id_));
}

MemPool::~MemPool() {
  // Nothing to be told of a failure: what could not be given back now is by emptying the cache.
  const WithoutGil no_gil; // queued work may still write to the memory
  const RecordedCall recorded(RecordedCall::kOther);
  (void)openreg_mempool_release(id_);
  (void)openreg_mempool_empty(id_);
}

uint64_t MemPool::begin_use(int device) {
  uint64_t previous = 0;
  check(openreg_mempool_current(device, &previous));
  check(openreg_mempool_set_current(device, id_));
  ++uses_;
  return previous;
}

void MemPool::end_use(int device, uint64_t previous) {
  --uses_;
  check(openreg_mempool_set_current(device, previous));
}

} // namespace openreg
