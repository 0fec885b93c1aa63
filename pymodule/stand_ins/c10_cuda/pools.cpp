#include "stand_ins/c10_cuda/pools.h"

#include <cstdlib>
#include <span>
#include <vector>

#include "stand_ins/c10_cuda/raw_memory.h"
#include "allocator/allocator.h"
#include "bridge/core/status.h"

namespace openreg {

namespace {

using c10::cuda::CUDACachingAllocator::AllocatorState;
using c10::cuda::CUDACachingAllocator::CheckpointDelta;

// A list of blocks that malloc allocated.
struct Blocks {
  openreg_block **list = nullptr;
  size_t count = 0;
  Blocks() = default;
  ~Blocks() { std::free(list); }
  Blocks(const Blocks &) = delete;
  Blocks &operator=(const Blocks &) = delete;

  std::span<openreg_block *const> all() const { return {list, count}; }
};

struct Checkpoint final : AllocatorState {
  std::unique_ptr<openreg_mempool_checkpoint, decltype(&std::free)> taken{nullptr, &std::free};
};

// A scope that this thread has begun and not ended.
struct Scope {
  int device;
  uint64_t pool;
  uint64_t previous; // the current pool outside of the scope
};

std::vector<Scope> &open_scopes() {
  static thread_local std::vector<Scope> scopes;
  return scopes;
}

} // namespace

uint64_t pool_number(c10::MempoolId_t id) {
  TORCH_CHECK_VALUE(id.first == 0, "openreg: (", id.first, ", ", id.second,
                    ") is not the id of a memory pool: expected the id of a torch.cuda.MemPool or "
                    "a number of torch.cuda.graph_pool_handle()");
  return id.second;
}

void begin_pool(c10::DeviceIndex device, c10::MempoolId_t id) {
  const auto pool = pool_number(id);
  uint64_t previous = 0;
  check(openreg_mempool_current(device, &previous));
  check(openreg_mempool_retain(pool));
  const auto status = openreg_mempool_set_current(device, pool);
  if (status != OPENREG_OK) {
    (void)openreg_mempool_release(pool);
  }
  check(status);
  open_scopes().push_back({device, pool, previous});
}

void end_pool(c10::DeviceIndex device, c10::MempoolId_t id) {
  auto &scopes = open_scopes();
  Scope *inner = nullptr; // the scope that was begun next on this device
  for (size_t i = scopes.size(); i-- > 0;) {
    if (scopes[i].device != device) {
      continue;
    }
    if (scopes[i].pool != id.second) {
      inner = &scopes[i];
      continue;
    }
    if (inner != nullptr) {
      inner->previous = scopes[i].previous;
    } else {
      check(openreg_mempool_set_current(device, scopes[i].previous));
    }
    scopes.erase(scopes.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
  TORCH_CHECK(false, "openreg: this thread does not allocate to pool (", id.first, ", ", id.second,
              ") on device ", static_cast<int>(device),
              ": expected a pool for which it called beginAllocateToPool");
}

bool pool_has_exactly(c10::DeviceIndex device, c10::MempoolId_t id,
                      const std::unordered_set<void *> &addresses) {
  Blocks blocks;
  check(openreg_mempool_blocks(device, pool_number(id), &blocks.list, &blocks.count));
  for (const auto *block : blocks.all()) {
    if (!addresses.contains(block->address)) {
      return false;
    }
  }
  return blocks.count == addresses.size();
}

std::shared_ptr<AllocatorState> take_checkpoint(c10::DeviceIndex device, c10::MempoolId_t id) {
  auto state = std::make_shared<Checkpoint>();
  openreg_mempool_checkpoint *taken = nullptr;
  check(openreg_mempool_take_checkpoint(device, pool_number(id), &taken));
  state->taken.reset(taken);
  return state;
}

CheckpointDelta restore_checkpoint(AllocatorState &state) {
  const auto *const checkpoint = dynamic_cast<Checkpoint *>(&state);
  TORCH_CHECK(checkpoint != nullptr,
              "openreg: the state of a memory pool is not one that getCheckpointState returned");
  Blocks blocks;
  check(openreg_mempool_restore(checkpoint->taken.get(), &blocks.list, &blocks.count));
  CheckpointDelta delta;
  for (auto *block : blocks.all()) {
    delta.dataptrs_allocd.push_back(pointer_to(block));
  }
  return delta;
}

} // namespace openreg
