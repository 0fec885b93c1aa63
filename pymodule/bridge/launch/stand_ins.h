// CPU tensors that look like others and are full of zeros, to learn on what a kernel makes of them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>

#include <unordered_map>

namespace openreg {

// Tensors that share memory have stand-ins that do. Memory is only taken where it is written to.
class StandIns {
public:
  // The same one for the same tensor.
  at::Tensor of(const at::Tensor &twin);

  // The value with all its tensors exchanged.
  c10::IValue in(const c10::IValue &value);

private:
  c10::Storage storage_of(const c10::Storage &storage);

  std::unordered_map<const c10::StorageImpl *, c10::Storage> storages_;
  std::unordered_map<const c10::TensorImpl *, at::Tensor> tensors_;
};

} // namespace openreg
