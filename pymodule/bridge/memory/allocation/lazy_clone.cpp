#include "memory/allocation/lazy_clone.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/COW.h>

#include "streams/observer.h"

namespace openreg {

namespace {

// PyTorch shares memory only if the context of its DataPtr is its address.
void use_address_as_context(c10::StorageImpl &storage) {
  auto &pointer = storage._mutable_data_ptr_no_checks();
  auto *const address = pointer.mutable_get();
  const auto device = pointer.device();
  if (address == nullptr) {
    pointer.clear();
  } else {
    pointer.release_context();
  }
  pointer = {address, address, &free_memory, device};
}

} // namespace

bool is_lazy_clone(const c10::DataPtr &pointer) {
  return c10::impl::cow::is_cow_data_ptr(pointer);
}

void make_writable(c10::StorageImpl &storage) {
  if (is_lazy_clone(storage.data_ptr())) {
    const c10::DeviceGuard on_device(storage.device()); // PyTorch allocates on the current one
    storage.mutable_data();
  }
}

c10::Storage lazy_clone(c10::StorageImpl &storage) {
  const auto &pointer = storage.data_ptr();
  if (!is_lazy_clone(pointer)) {
    TORCH_CHECK(pointer.get() == nullptr || owns_block(pointer), "_lazy_clone: the memory at ",
                pointer.get(), " was not allocated by this process's allocator");
    use_address_as_context(storage);
  }
  auto clone = c10::impl::cow::lazy_clone_storage(storage);
  if (has_observers()) {
    make_writable(*clone);
  }
  return c10::Storage(std::move(clone));
}

} // namespace openreg
