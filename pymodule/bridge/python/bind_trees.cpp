// Operations on storages that torch/_inductor/cudagraph_trees.py needs to replay compiled graphs.
//
// cudagraph_trees tracks which results of a replay are still in use. The next replay reuses the
// graph's memory, so results of the previous one release it, and later uses raise an error that
// says why. A storage is named by the address of its StorageImpl, to which the caller holds a
// reference.

#include "python/bind.h"

#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Dtype.h>

#include <optional>
#include <string>
#include <vector>

#include "memory/allocation/checkpoint.h"
#include "memory/allocation/memory.h"
#include "streams/inline_guard.h"
#include "tensor/device_tensor.h"

namespace py = pybind11;

namespace openreg {

namespace {

c10::StorageImpl &storage_at(uintptr_t address) {
  return *reinterpret_cast<c10::StorageImpl *>(address);
}

// Makes a tensor over a storage. `metadata` has dtype, size, stride and storage_offset.
at::Tensor tensor_of_storage(const py::dict &metadata, const c10::Storage &storage) {
  const auto dtype = reinterpret_cast<THPDtype *>(metadata["dtype"].ptr())->scalar_type;
  auto tensor = make_tensor(storage, c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
      metadata["size"].cast<std::vector<int64_t>>(),
      metadata["stride"].cast<std::vector<int64_t>>(), metadata["storage_offset"].cast<int64_t>());
  return tensor;
}

// Whether the tensors at `indices` have the given addresses. An address of None matches no tensor.
bool have_addresses(const py::list &tensors, const std::vector<std::optional<uintptr_t>> &addresses,
                    const std::vector<size_t> &indices) {
  for (const auto index : indices) {
    const auto tensor = tensors[index].cast<at::Tensor>();
    const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
    if (addresses.at(index) != address) {
      return false;
    }
  }
  return true;
}

} // namespace

void define_trees(py::module &module) {
  module.def("tensor_of_storage", &tensor_of_storage);
  module.def("have_addresses", &have_addresses);
  module.def("has_standard_deleter", [](uintptr_t storage) {
    return storage_at(storage).data_ptr().get_deleter() == device_allocator()->raw_deleter();
  });
  module.def("release_memory", [](uintptr_t storage) { release_memory(storage_at(storage)); });
  module.def("invalidate_storage", [](const at::Tensor &tensor, std::string why) {
    tensor.unsafeGetTensorImpl()->release_storage_and_set_meta_custom_data_ptr_error_msg_(
        std::move(why));
  });
  module.def("invalidate_memory", [](uintptr_t storage, std::string why) {
    storage_at(storage).release_data_and_set_meta_custom_data_ptr_error_msg_(std::move(why));
  });
  module.def("validate_memory",
             [](uintptr_t storage) { storage_at(storage).clear_data_ptr_access_error_msg_(); });
}

} // namespace openreg
