// Storages that share a block until one of them is written to (torch._lazy_clone), as PyTorch's
// allocators support. PyTorch copies the block when somebody asks a storage for its data to write
// to it. Kernels here write to twins (tensor/device_tensor.h), so a launch calls make_writable().
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include "memory/allocation/memory.h"

namespace openreg {

// Returns a storage with the same content, which shares the block of `storage`. Raises RuntimeError
// if the memory is not a block. While observers watch, the content is copied at once, in the order
// of the current stream: they recognize memory by its address.
c10::Storage lazy_clone(c10::StorageImpl &storage);

// Whether the storage shares its block with others.
bool is_lazy_clone(const c10::DataPtr &pointer);

// Returns the block of a storage, alone or shared; null if it has none.
inline openreg_block *find_block(const c10::DataPtr &pointer) {
  if (owns_block(pointer)) [[likely]] {
    return block_of(pointer);
  }
  return is_lazy_clone(pointer) ? openreg_block_find(pointer.get()) : nullptr;
}

// Gives a storage a block of its own if it is shared. The copy is made in the order of the current
// stream.
void make_writable(c10::StorageImpl &storage);

// Call this before a kernel writes to a strided tensor on the device.
inline void make_writable(const at::Tensor &tensor) {
  const auto &storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  if (storage && !owns_block(storage.data_ptr())) [[unlikely]] {
    make_writable(*storage.unsafeGetStorageImpl());
  }
}

} // namespace openreg
