#include "tensor/composite.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/InferenceMode.h>

#include "compat/composite_impls.h"
#include "tensor/device_tensor.h"

namespace openreg {

namespace {

c10::DispatchKeySet keys_for(c10::DispatchKey functionality, c10::Device device) {
  const auto backend = device.is_cpu() ? c10::BackendComponent::CPUBit : kDeviceKeys.component;
  return c10::DispatchKeySet(functionality) | c10::DispatchKeySet(backend);
}

// Returns a dense tensor over the storage of `tensor`.
at::Tensor dense_over(const at::Tensor &tensor, at::ScalarType dtype) {
  const auto &storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  return at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), keys_for(c10::DispatchKey::Dense, storage.device()),
      c10::scalarTypeToTypeMeta(dtype));
}

// ---- quantized ----------------------------------------------------------------------------------

at::Tensor map_quantized(const at::Tensor &tensor, c10::Device device, MemberMap map) {
  return make_quantized(keys_for(c10::DispatchKey::Quantized, device), tensor.dtype(),
                        map(integers_of(tensor)), map_quantizer(quantizer_of(tensor), map));
}

void assign_quantized(const at::Tensor &to, const at::Tensor &twin, MemberMap map) {
  const auto integers = integers_of(to);
  write_back(integers, integers_of(twin));
  set_quantized(to, integers, map_quantizer(quantizer_of(twin), map));
}

// ---- nested -------------------------------------------------------------------------------------

// The memory of a nested tensor as one dimension.
at::Tensor buffer_of(const at::Tensor &nested) {
  auto buffer = dense_over(nested, nested.scalar_type());
  const auto bytes = buffer.storage().nbytes();
  buffer.unsafeGetTensorImpl()->set_sizes_contiguous(
      {static_cast<int64_t>(bytes / nested.dtype().itemsize())});
  return buffer;
}

// Tables that a kernel made are in device memory, like everything that it allocates; copies those.
at::Tensor on_host(const at::Tensor &table) {
  return is_from_override(table.storage().data_ptr()) ? table.clone() : table;
}

// While it lives, new tensors are inference tensors if and only if `tensor` is one. In inference
// mode a view of an ordinary tensor is ordinary, and so must be its counterpart.
struct InferenceModeOf {
  explicit InferenceModeOf(const at::Tensor &tensor)
      : mode(c10::InferenceMode::is_enabled() && tensor.is_inference()) {}
  c10::InferenceMode mode;
  at::AutoDispatchBelowADInplaceOrView below; // leaving inference mode would enable autograd
};

at::Tensor map_nested(const at::Tensor &tensor, MemberMap map) {
  const InferenceModeOf mode(tensor);
  const auto tables = nested_tables(tensor);
  return make_nested(map(buffer_of(tensor)),
                     {on_host(tables.sizes), on_host(tables.strides), on_host(tables.offsets)});
}

// ---- sparse -------------------------------------------------------------------------------------

at::Tensor map_sparse(const at::Tensor &sparse, c10::Device device, MemberMap map) {
  const auto kind = sparse.is_sparse() ? c10::DispatchKey::Sparse : c10::DispatchKey::SparseCsr;
  auto result = make_sparse(keys_for(kind, device), device, sparse.layout(), sparse.dtype());
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
    return quantizer; // per tensor: no tensors to map
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
  } else if (!to.is_nested()) { // kernels write to a nested tensor's buffer only
    assign_sparse(to, twin, map);
  }
}

} // namespace openreg
