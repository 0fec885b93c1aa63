// A tensor on a simulated device, and its CPU twin.
//
// The twin is a CPU tensor over the kernel view of the same bytes: what CPU kernels are given. It
// is made once and cached on the tensor; twins of tensors that share a storage share a twin
// storage, so that kernels recognise aliases as they would on the CPU. The twin storage is kept in
// the `user` field of the storage's block and looks at the memory without owning it:
//
//   TensorImpl  DeviceTensor --------- twin_ --------> TensorImpl (CPU)
//                   |                                       |
//   StorageImpl  device storage --- block->user -----> twin storage (CPU)
//                   |  owns                                 |  looks at
//                 block (device view)  ===== same bytes ===== (kernel view)
//
// A twin is valid while its storage, sizes, strides, offset, dtype and conjugate and negative bits
// agree with the tensor's. A tensor that is a plain TensorImpl (a parameter that Module.to moved
// here keeps its identity, and with it the TensorImpl it was made as) keeps its twin in the place
// that TensorImpl has for a backend's data. Memory that is not a block, such as another library's
// that came in by DLPack, keeps its twin storage in the context of its DataPtr.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <atomic>
#include <string>
#include <typeinfo>
#include <unordered_map>

#include "memory/allocation/memory.h"
#include "core/recycled.h"

namespace openreg {

class DeviceTensor final : public c10::TensorImpl, public Recycled<DeviceTensor> {
public:
  DeviceTensor(c10::Storage &&storage, caffe2::TypeMeta dtype);

  // Takes sizes, strides, offset, dtype and flags from `like`, whatever its device.
  DeviceTensor(c10::Storage &&storage, const c10::TensorImpl &like);

  // As above, for a kernel result over the twin storage of `storage`: it becomes the twin.
  DeviceTensor(c10::Storage &&storage, at::Tensor &&twin);

  // A view of `base`, which has the twin that `twin` is a view of. It is an inference tensor if
  // `base` is one, whatever the mode.
  DeviceTensor(const c10::TensorImpl &base, at::Tensor &&twin);

  // The valid twin: cached, or made now. May be called from several threads.
  const at::Tensor &twin() const {
    if (!has_valid_twin()) [[unlikely]] {
      refresh_twin();
    }
    return twin_;
  }

  c10::intrusive_ptr<TensorImpl>
  shallow_copy_and_detach(const c10::VariableVersion &version_counter,
                          bool allow_metadata_change) const override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion &&version_counter,
                                                         bool allow_metadata_change) const override;
  void release_resources() override;

private:
  bool has_valid_twin() const;
  void refresh_twin() const;

  mutable at::Tensor twin_;
  mutable std::atomic<bool> has_twin_{false};
};

inline bool is_device_tensor(const at::Tensor &tensor) {
  const auto &impl = *tensor.unsafeGetTensorImpl();
  return &typeid(impl) == &typeid(DeviceTensor); // the only one: the class is hidden
}

const at::Tensor &twin_of_plain(const at::Tensor &tensor);

// The twin of any strided tensor on a device. Lives as long as the tensor keeps its metadata.
inline const at::Tensor &twin_of(const at::Tensor &tensor) {
  if (is_device_tensor(tensor)) [[likely]] {
    return static_cast<const DeviceTensor *>(tensor.unsafeGetTensorImpl())->twin();
  }
  return twin_of_plain(tensor);
}

// What torch._utils.set_tensor_metadata attached to a tensor, apart from its lazy marks. A shallow
// copy has it as well, as one of any backend's.
using Metadata = std::unordered_map<std::string, bool>;
const Metadata &get_metadata(const at::Tensor &tensor);
void set_metadata(const at::Tensor &tensor, Metadata metadata);

// The twin storage of a device storage. May be called from several threads.
c10::StorageImpl *twin_storage_of(const c10::StorageImpl &storage);

// A device storage over a block, resizable. Takes the block.
c10::Storage make_storage(openreg_block *block, size_t bytes);

// A new tensor over `storage`, with no twin yet.
at::Tensor make_tensor(c10::Storage storage, caffe2::TypeMeta dtype);

// Turns a kernel's result whose storage owns a redirected block into a device tensor; the result
// becomes its twin. No bytes move. Raises TypeError for a dtype that the device lacks.
at::Tensor hand_over(at::Tensor &&result, const char *operator_name);

// The same for a result without bytes, which the redirection gave no memory.
at::Tensor hand_over_empty(at::Tensor &&result, c10::DeviceIndex device, const char *operator_name);

// A view of `base` with the metadata of `result`, a CPU tensor over its twin storage; the result
// becomes its twin.
at::Tensor share_storage(const at::Tensor &base, at::Tensor &&result);

// After a kernel wrote to a twin: moves grown memory to the device storage and carries changed
// sizes and strides to the tensor.
void write_back(const at::Tensor &tensor, const at::Tensor &twin);

// Replaces the memory of a device storage by a block of `bytes`, keeping what fits of the old
// content, in the order of the current stream. Twins are made anew.
void resize_storage(c10::StorageImpl &storage, size_t bytes);

} // namespace openreg
