#include "stand_ins/c10_cuda/raw_memory.h"

#include <c10/util/Exception.h>

#include "stand_ins/c10_cuda/registered.h"

namespace openreg {

namespace {

// The extension module's function that frees a block. All its DataPtrs have it, also for 0 bytes.
c10::DeleterFnPtr block_deleter() {
  static const auto deleter = registered_allocator().allocate(0).get_deleter();
  return deleter;
}

} // namespace

void *allocate_raw(size_t bytes) {
  if (bytes == 0) {
    return nullptr;
  }
  auto pointer = registered_allocator().allocate(bytes);
  auto *const address = pointer.get();
  pointer.release_context();
  return address;
}

openreg_block *require_block(const void *address) {
  auto *const block = openreg_block_find(address);
  TORCH_CHECK(block != nullptr, "invalid device pointer: ", address,
              "\nopenreg: no allocated block of the caching allocator begins there");
  return block;
}

void free_raw(void *address) {
  if (address != nullptr) {
    block_deleter()(require_block(address));
  }
}

c10::DataPtr pointer_to(openreg_block *block) {
  return {block->address, block, block_deleter(),
          c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(block->device))};
}

} // namespace openreg
