// What torch/_inductor/cudagraph_trees.py asks of storages, which replays what was compiled.
//
// It keeps track of which results of replays are still looked at. A graph's memory is used again
// by the next replay: results of the last one then let go of it, and say why when somebody looks.
// Storages are named by the addresses of their StorageImpl, of which the caller has a reference.

#include "python/bind_trees.h"

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

// A tensor of a storage, from a dict of dtype, size, stride and storage_offset.
at::Tensor tensor_of_storage(const py::dict &metadata, const c10::Storage &storage) {
  const auto dtype = reinterpret_cast<THPDtype *>(metadata["dtype"].ptr())->scalar_type;
  auto tensor = make_tensor(storage, c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
      metadata["size"].cast<std::vector<int64_t>>(),
      metadata["stride"].cast<std::vector<int64_t>>(), metadata["storage_offset"].cast<int64_t>());
  return tensor;
}

// Whether the tensors at `indices` lie where they did: None at such a place is no tensor.
bool lie_at(const py::list &tensors, const std::vector<std::optional<uintptr_t>> &addresses,
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
  module.def("lie_at", &lie_at);
  module.def("owns_block",
             [](uintptr_t storage) { return owns_block(storage_at(storage).data_ptr()); });
  module.def("let_go_of_memory", [](uintptr_t storage) { let_go(storage_at(storage)); });
  module.def("refuse_storage", [](const at::Tensor &tensor, std::string why) {
    tensor.unsafeGetTensorImpl()->release_storage_and_set_meta_custom_data_ptr_error_msg_(
        std::move(why));
  });
  module.def("refuse_memory", [](uintptr_t storage, std::string why) {
    storage_at(storage).release_data_and_set_meta_custom_data_ptr_error_msg_(std::move(why));
  });
}

} // namespace openreg
