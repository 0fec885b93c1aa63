#include "launch/placeholder_inputs.h"

#include <c10/core/Allocator.h>
#include <c10/core/TensorImpl.h>

#include <cstdlib>
#include <utility>

#include "launch/map_tensors.h"
#include "memory/allocation/memory.h"

namespace openreg {

c10::Storage PlaceholderInputs::storage_of(const c10::Storage &storage) {
  auto &copy = storages_[storage.unsafeGetStorageImpl()];
  if (!copy) {
    const auto bytes = storage.nbytes();
    void *memory = std::calloc(bytes, 1); // untouched pages cost nothing
    TORCH_CHECK(memory != nullptr || bytes == 0, "openreg: out of host memory: cannot allocate ",
                bytes, " bytes to plan a captured launch");
    copy = c10::Storage(c10::Storage::use_byte_size_t(), bytes,
                        c10::DataPtr(memory, memory, &std::free, c10::Device(c10::kCPU)),
                        override_allocator(), /*resizable=*/true);
  }
  return copy;
}

at::Tensor PlaceholderInputs::of(const at::Tensor &twin) {
  if (!twin.defined() || !twin.has_storage()) {
    return twin;
  }
  auto &copy = tensors_[twin.unsafeGetTensorImpl()];
  if (!copy.defined()) {
    const auto *impl = twin.unsafeGetTensorImpl();
    auto like = impl->shallow_copy_and_detach(c10::VariableVersion(0),
                                              /*allow_tensor_metadata_change=*/true);
    like->set_storage_keep_dtype(storage_of(twin.storage()));
    if (impl->is_wrapped_number()) {
      like->set_wrapped_number(true);
    }
    copy = at::Tensor(std::move(like));
    if (number_ != 0) {
      copy.fill_(number_);
    }
  }
  return copy;
}

c10::IValue PlaceholderInputs::in(const c10::IValue &value) {
  return map_tensors(value, [this](const at::Tensor &tensor) { return of(tensor); });
}

} // namespace openreg
