#include "stand_ins/c10_cuda/raw_memory.h"

#include <c10/util/Exception.h>

#include "stand_ins/c10_cuda/registered.h"

namespace openreg {

void *allocate_raw(size_t bytes) {
  return bytes == 0 ? nullptr : registered_allocator().raw_allocate(bytes);
}

openreg_block *require_block(const void *address) {
  auto *const block = openreg_block_find(address);
  TORCH_CHECK(block != nullptr, "invalid device pointer: ", address,
              "\nopenreg: no allocated block of the caching allocator begins there");
  return block;
}

void free_raw(void *address) {
  if (address != nullptr) {
    registered_allocator().raw_deallocate(address);
  }
}

c10::DataPtr pointer_to(openreg_block *block) {
  return {block->address, block->address, registered_allocator().raw_deleter(),
          c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(block->device))};
}

} // namespace openreg
