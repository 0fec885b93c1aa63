// Composite tensors: tensors that consist of dense ones.
//   - sparse COO: indices, values;
//   - the four compressed sparse layouts: compressed indices, plain indices, values;
//   - quantized: the integers, and for per-channel quantization scales and zero points;
//   - nested: the buffer. The tables of sizes, strides and offsets are host memory on any device.
// A launch substitutes them component by component. The twin of a composite device tensor is a
// composite CPU tensor of the components' twins. A composite result becomes a composite device
// tensor of the adopted components. Nothing is copied.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/util/FunctionRef.h>

namespace openreg {

inline bool is_composite(const at::Tensor &tensor) {
  constexpr c10::DispatchKeySet kinds({c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr,
                                       c10::DispatchKey::Quantized,
                                       c10::DispatchKey::NestedTensor});
  return tensor.unsafeGetTensorImpl()->key_set().has_any(kinds);
}

using MemberMap = c10::function_ref<at::Tensor(const at::Tensor &)>;

// Returns a tensor of the same kind and sizes on `device`, whose components are those that `map`
// returns.
at::Tensor map_components(const at::Tensor &tensor, c10::Device device, MemberMap map);

// Brings the device tensor `to` up to date with its twin after a kernel wrote to it: the sizes, and
// the components that `map` returns.
void assign_components(const at::Tensor &to, const at::Tensor &twin, MemberMap map);

// Returns the integers of a quantized tensor: a dense tensor over the same storage.
at::Tensor integers_of(const at::Tensor &quantized);

// Returns a quantizer of the same scheme. If its scales and zero points are tensors, they are those
// that `map` returns.
at::QuantizerPtr map_quantizer(const at::QuantizerPtr &quantizer, MemberMap map);

} // namespace openreg
