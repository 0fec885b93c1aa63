#include "sparse.h"

#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/native/SparseTensorUtils.h>
#include <c10/core/DeviceGuard.h>

namespace openreg {

namespace {

using at::sparse::get_sparse_impl;
using at::sparse_csr::get_sparse_csr_impl;

c10::DispatchKeySet keys_for(c10::DispatchKey functionality, c10::Device device) {
  const auto backend =
      device.is_cpu() ? c10::BackendComponent::CPUBit : c10::BackendComponent::PrivateUse1Bit;
  return c10::DispatchKeySet(functionality) | c10::DispatchKeySet(backend);
}

} // namespace

void for_each_member(const at::Tensor &sparse, MemberVisit visit) {
  if (sparse.is_sparse()) {
    const auto *impl = get_sparse_impl(sparse);
    visit(impl->indices());
    visit(impl->values());
  } else {
    const auto *impl = get_sparse_csr_impl(sparse);
    visit(impl->compressed_indices());
    visit(impl->plain_indices());
    visit(impl->values());
  }
}

at::Tensor map_members(const at::Tensor &sparse, c10::Device device, MemberMap map) {
  const c10::OptionalDeviceGuard guard(device); // a COO tensor is made on the current device
  auto result = sparse.is_sparse() ? at::detail::make_tensor<at::SparseTensorImpl>(
                                         keys_for(c10::DispatchKey::Sparse, device), sparse.dtype())
                                   : at::detail::make_tensor<at::SparseCsrTensorImpl>(
                                         keys_for(c10::DispatchKey::SparseCsr, device), device,
                                         sparse.layout(), sparse.dtype());
  assign_members(result, sparse, map);
  return result;
}

void assign_members(const at::Tensor &to, const at::Tensor &from, MemberMap map) {
  if (from.is_sparse()) {
    auto *target = get_sparse_impl(to);
    const auto *source = get_sparse_impl(from);
    target->raw_resize_(source->sparse_dim(), source->dense_dim(), source->sizes());
    target->set_indices_and_values_unsafe(map(source->indices()), map(source->values()));
    target->set_coalesced(source->coalesced());
  } else {
    const auto *source = get_sparse_csr_impl(from);
    get_sparse_csr_impl(to)->set_member_tensors(map(source->compressed_indices()),
                                                map(source->plain_indices()), map(source->values()),
                                                from.sizes());
  }
}

} // namespace openreg
