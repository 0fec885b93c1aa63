// A tensor on a simulated device, and its CPU twin.
//
// The twin is a CPU tensor over the kernel view of the same bytes. CPU kernels get the twin. It is
// made once and cached on the tensor. Twins of tensors that share a storage share a twin storage,
// so that kernels recognize aliases as they do on the CPU. The `user` field of the storage's block
// holds the twin storage, which points to the memory without owning it:
//
//   TensorImpl  DeviceTensor --------- twin_ --------> TensorImpl (CPU)
//                   |                                       |
//   StorageImpl  device storage --- block->user -----> twin storage (CPU)
//                   |  owns                                 |  points to
//                 block (device view)  ===== same bytes ===== (kernel view)
//
// A twin is valid while its storage, sizes, strides, offset, dtype and conjugate and negative bits
// agree with the tensor's.
//
// Two cases differ. A device tensor can be a plain TensorImpl: a parameter that Module.to() moved
// to the device keeps its TensorImpl. It keeps its twin in TensorImpl's slot for a backend's data.
// And memory may not be a block, for instance if another library made it and DLPack imported it.
// Then the context of the storage's DataPtr holds the twin storage.
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

  // Takes sizes, strides, offset, dtype and flags from `like`, on any device.
  DeviceTensor(c10::Storage &&storage, const c10::TensorImpl &like);

  // The same for a kernel's result over the twin storage of `storage`, which becomes the twin.
  DeviceTensor(c10::Storage &&storage, at::Tensor &&twin);

  // A view of `base`. `twin` is a view of base's twin. The view is an inference tensor if and only
  // if `base` is one, regardless of the mode.
  DeviceTensor(const c10::TensorImpl &base, at::Tensor &&twin);

  // Returns the valid twin, cached or made now. Thread-safe.
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
  return &typeid(impl) ==
         &typeid(DeviceTensor); // the class is not exported, so its typeid is unique
}

const at::Tensor &twin_of_plain(const at::Tensor &tensor);

// Returns the twin of any strided device tensor. The reference is valid until the tensor's metadata
// or storage changes.
inline const at::Tensor &twin_of(const at::Tensor &tensor) {
  if (is_device_tensor(tensor)) [[likely]] {
    return static_cast<const DeviceTensor *>(tensor.unsafeGetTensorImpl())->twin();
  }
  return twin_of_plain(tensor);
}

// What torch._utils.set_tensor_metadata attached to a tensor, without its conjugate and negative
// bits. Shallow copies share it, as with other backends.
using Metadata = std::unordered_map<std::string, bool>;
const Metadata &get_metadata(const at::Tensor &tensor);
void set_metadata(const at::Tensor &tensor, Metadata metadata);

// Returns the twin storage of a device storage. Thread-safe.
c10::StorageImpl *twin_storage_of(const c10::StorageImpl &storage);

// Makes a resizable device storage over a block, and takes ownership of the block.
c10::Storage make_storage(openreg_block *block, size_t bytes);

// Makes a tensor over `storage`.
at::Tensor make_tensor(c10::Storage storage, caffe2::TypeMeta dtype);

// Turns a kernel's result that owns memory allocated on the device (is_from_override) into a device
// tensor. The result becomes its twin. No bytes move. Raises TypeError for an unsupported dtype.
at::Tensor adopt_result(at::Tensor &&result, const char *operator_name);

// The same for a result in host memory that no other tensor shows. The bytes are copied to a new
// block, and the host memory is freed. Call it within inline work on the device's current stream.
at::Tensor move_result(at::Tensor &&result, c10::DeviceIndex device, const char *operator_name);

// Makes a view of `base` with the metadata of `result`, a CPU tensor over base's twin storage. The
// result becomes the view's twin.
at::Tensor share_storage(const at::Tensor &base, at::Tensor &&result);

// Call this after a kernel wrote to a twin. Gives the device storage memory that grew, or that the
// kernel set, and copies changed sizes and strides to the tensor.
void write_back(const at::Tensor &tensor, const at::Tensor &twin);

// Moves a device storage to a new block of `bytes`, and copies the content that fits, ordered on
// the current stream. Existing twins become invalid.
void resize_storage(c10::StorageImpl &storage, size_t bytes);

} // namespace openreg
