// Tensors that are made of dense ones: sparse COO (indices, values) and the four compressed layouts
// (compressed and plain indices, values). A launch exchanges them member by member: the twin of a
// sparse device tensor is a sparse CPU tensor of twins, and a sparse result becomes a sparse device
// tensor of the members handed over. Nothing is copied.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

namespace openreg {

inline bool is_sparse(const at::Tensor &tensor) {
  const auto *impl = tensor.unsafeGetTensorImpl();
  return impl->is_sparse() || impl->is_sparse_compressed();
}

using MemberVisit = c10::function_ref<void(const at::Tensor &)>;
using MemberMap = c10::function_ref<at::Tensor(const at::Tensor &)>;

// Calls `visit` with each member of a sparse tensor.
void for_each_member(const at::Tensor &sparse, MemberVisit visit);

// A sparse tensor of the same layout and sizes on `device`, of the members that `map` gives.
at::Tensor map_members(const at::Tensor &sparse, c10::Device device, MemberMap map);

// Makes `to` what `from`, of the same layout, is: sizes, and the members that `map` gives.
void assign_members(const at::Tensor &to, const at::Tensor &from, MemberMap map);

} // namespace openreg
