#include "compat/composite_impls.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/quantized/QTensorImpl.h>
#include <c10/core/DeviceGuard.h>

namespace openreg {

using at::native::get_nested_tensor_impl;
using at::sparse::get_sparse_impl;
using at::sparse_csr::get_sparse_csr_impl;

at::QuantizerPtr quantizer_of(const at::Tensor &quantized) {
  return at::get_qtensorimpl(quantized)->quantizer();
}

at::Tensor make_quantized(c10::DispatchKeySet keys, caffe2::TypeMeta dtype,
                          const at::Tensor &integers, at::QuantizerPtr quantizer) {
  auto result = at::detail::make_tensor<at::QTensorImpl>(c10::Storage(integers.storage()), keys,
                                                         dtype, std::move(quantizer));
  result.unsafeGetTensorImpl()->set_sizes_and_strides(integers.sizes(), integers.strides(),
                                                      integers.storage_offset());
  return result;
}

void set_quantized(const at::Tensor &quantized, const at::Tensor &integers,
                   at::QuantizerPtr quantizer) {
  auto *target = at::get_qtensorimpl(quantized);
  target->set_storage_keep_dtype(integers.storage());
  target->set_sizes_and_strides(integers.sizes(), integers.strides(), integers.storage_offset());
  target->set_quantizer_(std::move(quantizer));
}

NestedTables nested_tables(const at::Tensor &nested) {
  const auto *impl = get_nested_tensor_impl(nested);
  return {impl->get_nested_sizes(), impl->get_nested_strides(), impl->get_storage_offsets()};
}

at::Tensor make_nested(at::Tensor buffer, NestedTables tables) {
  return at::detail::make_tensor<at::native::NestedTensorImpl>(
      std::move(buffer), std::move(tables.sizes), std::move(tables.strides),
      std::move(tables.offsets));
}

at::Tensor make_sparse(c10::DispatchKeySet keys, c10::Device device, c10::Layout layout,
                       caffe2::TypeMeta dtype) {
  if (layout != c10::kSparse) {
    return at::detail::make_tensor<at::SparseCsrTensorImpl>(keys, device, layout, dtype);
  }
  const c10::OptionalDeviceGuard guard(
      device); // the constructor makes members on the current device
  return at::detail::make_tensor<at::SparseTensorImpl>(keys, dtype);
}

void assign_sparse(const at::Tensor &to, const at::Tensor &from,
                   c10::function_ref<at::Tensor(const at::Tensor &)> map) {
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
