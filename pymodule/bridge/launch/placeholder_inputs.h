// Placeholder inputs: CPU tensors with the metadata of a launch's arguments, filled with one
// number. A dry run of the kernel on them shows what results it returns.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>

#include <unordered_map>

namespace openreg {

// Placeholders of tensors that share memory share memory, too. With number 0 the system commits
// only pages that a kernel writes to.
class PlaceholderInputs {
public:
  explicit PlaceholderInputs(int number) : number_(number) {}

  // Returns the placeholder of a twin: the same one for the same tensor.
  at::Tensor of(const at::Tensor &twin);

  // Returns the value with placeholders for all its tensors.
  c10::IValue in(const c10::IValue &value);

private:
  c10::Storage storage_of(const c10::Storage &storage);

  int number_;
  std::unordered_map<const c10::StorageImpl *, c10::Storage> storages_;
  std::unordered_map<const c10::TensorImpl *, at::Tensor> tensors_;
};

} // namespace openreg
