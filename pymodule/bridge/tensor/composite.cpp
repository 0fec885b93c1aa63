#include "tensor/composite.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/quantized/QTensorImpl.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>

#include "tensor/device_tensor.h"

namespace openreg {

namespace {

using at::native::get_nested_tensor_impl;
using at::sparse::get_sparse_impl;
using at::sparse_csr::get_sparse_csr_impl;

c10::DispatchKeySet keys_for(c10::DispatchKey functionality, c10::Device device) {
  const auto backend =
      device.is_cpu() ? c10::BackendComponent::CPUBit : c10::BackendComponent::PrivateUse1Bit;
  return c10::DispatchKeySet(functionality) | c10::DispatchKeySet(backend);
}

// A dense tensor over the storage of `tensor`.
at::Tensor dense_over(const at::Tensor &tensor, at::ScalarType dtype) {
  const auto &storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  return at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), keys_for(c10::DispatchKey::Dense, storage.device()),
      c10::scalarTypeToTypeMeta(dtype));
}

// ---- quantized ----------------------------------------------------------------------------------

at::Tensor map_quantized(const at::Tensor &tensor, c10::Device device, MemberMap map) {
  const auto integers = map(integers_of(tensor));
  auto result = at::detail::make_tensor<at::QTensorImpl>(
      c10::Storage(integers.storage()), keys_for(c10::DispatchKey::Quantized, device),
      tensor.dtype(), map_quantizer(at::get_qtensorimpl(tensor)->quantizer(), map));
  result.unsafeGetTensorImpl()->set_sizes_and_strides(integers.sizes(), integers.strides(),
                                                      integers.storage_offset());
  return result;
}

void assign_quantized(const at::Tensor &to, const at::Tensor &twin, MemberMap map) {
  const auto integers = integers_of(to);
  write_back(integers, integers_of(twin));
  auto *target = at::get_qtensorimpl(to);
  target->set_storage_keep_dtype(integers.storage());
  target->set_sizes_and_strides(integers.sizes(), integers.strides(), integers.storage_offset());
  target->set_quantizer_(map_quantizer(at::get_qtensorimpl(twin)->quantizer(), map));
}

// ---- nested -------------------------------------------------------------------------------------

// All memory of a nested tensor, in one dimension.
at::Tensor buffer_of(const at::Tensor &nested) {
  auto buffer = dense_over(nested, nested.scalar_type());
  const auto bytes = buffer.storage().nbytes();
  buffer.unsafeGetTensorImpl()->set_sizes_contiguous(
      {static_cast<int64_t>(bytes / nested.dtype().itemsize())});
  return buffer;
}

// A table that a kernel made lies in device memory, as all that it allocated.
at::Tensor on_host(const at::Tensor &table) {
  return is_redirected(table.storage().data_ptr()) ? table.clone() : table;
}

// While it lives, new tensors are inference tensors if `tensor` is one, and ordinary if not: in
// inference mode a view of an ordinary tensor is still ordinary, and so must be its counterpart.
struct MadeLike {
  explicit MadeLike(const at::Tensor &tensor)
      : mode(c10::InferenceMode::is_enabled() && tensor.is_inference()) {}
  c10::InferenceMode mode;
  at::AutoDispatchBelowADInplaceOrView below; // leaving inference mode would also turn it on
};

at::Tensor map_nested(const at::Tensor &tensor, MemberMap map) {
  const MadeLike made_like(tensor);
  const auto *nested = get_nested_tensor_impl(tensor);
  return at::detail::make_tensor<at::native::NestedTensorImpl>(
      map(buffer_of(tensor)), on_host(nested->get_nested_sizes()),
      on_host(nested->get_nested_strides()), on_host(nested->get_storage_offsets()));
}

// ---- sparse -------------------------------------------------------------------------------------

void assign_sparse(const at::Tensor &to, const at::Tensor &from, MemberMap map) {
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

at::Tensor map_sparse(const at::Tensor &sparse, c10::Device device, MemberMap map) {
  const c10::OptionalDeviceGuard guard(device); // a COO tensor is made on the current device
  auto result = sparse.is_sparse() ? at::detail::make_tensor<at::SparseTensorImpl>(
                                         keys_for(c10::DispatchKey::Sparse, device), sparse.dtype())
                                   : at::detail::make_tensor<at::SparseCsrTensorImpl>(
                                         keys_for(c10::DispatchKey::SparseCsr, device), device,
                                         sparse.layout(), sparse.dtype());
  assign_sparse(result, sparse, map);
  return result;
}

} // namespace

at::Tensor integers_of(const at::Tensor &quantized) {
  auto integers = dense_over(quantized, at::toUnderlying(quantized.scalar_type()));
  integers.unsafeGetTensorImpl()->set_sizes_and_strides(quantized.sizes(), quantized.strides(),
                                                        quantized.storage_offset());
  return integers;
}

at::QuantizerPtr map_quantizer(const at::QuantizerPtr &quantizer, MemberMap map) {
  const auto *channels = dynamic_cast<const at::PerChannelAffineQuantizer *>(quantizer.get());
  if (channels == nullptr) {
    return quantizer; // numbers alone
  }
  auto scales = map(channels->scales());
  auto zero_points = map(channels->zero_points());
  if (quantizer->qscheme() == at::kPerChannelAffine) {
    return c10::make_intrusive<at::PerChannelAffineQuantizer>(
        quantizer->scalar_type(), std::move(scales), std::move(zero_points), channels->axis());
  }
  return c10::make_intrusive<at::PerChannelAffineFloatQParamsQuantizer>(
      quantizer->scalar_type(), std::move(scales), std::move(zero_points), channels->axis());
}

at::Tensor map_components(const at::Tensor &tensor, c10::Device device, MemberMap map) {
  if (tensor.is_quantized()) {
    return map_quantized(tensor, device, map);
  }
  return tensor.is_nested() ? map_nested(tensor, map) : map_sparse(tensor, device, map);
}

void assign_components(const at::Tensor &to, const at::Tensor &twin, MemberMap map) {
  if (to.is_quantized()) {
    assign_quantized(to, twin, map);
  } else if (!to.is_nested()) { // a kernel can write to a nested tensor's buffer, and to no more
    assign_sparse(to, twin, map);
  }
}

} // namespace openreg
