#include "memory/allocation/checkpoint.h"

#include <span>
#include <unordered_map>

#include "core/status.h"
#include "memory/allocation/memory.h"
#include "memory/observation/memory_history.h"
#include "memory/allocation/pluggable_allocator.h"
#include "streams/inline_guard.h"

namespace openreg {

namespace {

// A list of blocks that malloc allocated.
struct Blocks {
  openreg_block **list = nullptr;
  size_t count = 0;
  ~Blocks() { std::free(list); }

  std::span<openreg_block *const> all() const { return {list, count}; }
};

} // namespace

void release_memory(c10::StorageImpl &storage) {
  const auto &pointer = storage.data_ptr();
  TORCH_CHECK(owns_block(pointer), "openreg: a storage at ", pointer.get(),
              " does not own its memory");
  auto *const address = pointer.get();
  storage.set_data_ptr_noswap({address, pointer.device()});
}

PoolCheckpoint take_pool_checkpoint(int device, uint64_t pool) {
  require_own_allocator("getCheckpointState");
  openreg_mempool_checkpoint *checkpoint = nullptr;
  check(openreg_mempool_take_checkpoint(device, pool, &checkpoint));
  return {checkpoint, &std::free};
}

void restore_pool(const openreg_mempool_checkpoint &checkpoint,
                  const std::vector<c10::StorageImpl *> &stale,
                  const std::vector<c10::StorageImpl *> &adopters) {
  require_own_allocator("setCheckpointPoolState");
  for (auto *storage : stale) {
    release_memory(*storage);
  }
  std::unordered_map<const void *, c10::StorageImpl *> adopter_at;
  for (auto *storage : adopters) {
    adopter_at[storage->data()] = storage;
  }
  Blocks blocks;
  {
    const WithoutGil no_gil; // waits for streams that use freed blocks
    const MemoryStackScope recorded(MemoryStackScope::kOther);
    check(openreg_mempool_restore(&checkpoint, &blocks.list, &blocks.count));
  }
  for (auto *block : blocks.all()) {
    const auto found = adopter_at.find(block->address);
    if (found != adopter_at.end() && !owns_block(found->second->data_ptr())) {
      found->second->set_data_ptr_noswap(device_pointer(block));
    }
  }
}

std::vector<uintptr_t> allocated_addresses(int device, uint64_t pool) {
  Blocks blocks;
  check(openreg_mempool_blocks(device, pool, &blocks.list, &blocks.count));
  std::vector<uintptr_t> addresses;
  for (const auto *block : blocks.all()) {
    addresses.push_back(reinterpret_cast<uintptr_t>(block->address));
  }
  return addresses;
}

} // namespace openreg
