// CPU tensors that look like others and are full of one number, to learn on what a kernel makes of
// them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>

#include <unordered_map>

namespace openreg {

// Tensors that share memory have stand-ins that do. Memory of zeros is only taken where a kernel
// writes to it.
class StandIns {
public:
  explicit StandIns(int number) : number_(number) {}

  // The same one for the same tensor.
  at::Tensor of(const at::Tensor &twin);

  // The value with all its tensors exchanged.
  c10::IValue in(const c10::IValue &value);

private:
  c10::Storage storage_of(const c10::Storage &storage);

  int number_;
  std::unordered_map<const c10::StorageImpl *, c10::Storage> storages_;
  std::unordered_map<const c10::TensorImpl *, at::Tensor> tensors_;
};

} // namespace openreg
