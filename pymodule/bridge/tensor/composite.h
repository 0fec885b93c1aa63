// Tensors that are made of dense ones:
//   - sparse COO: indices, values;
//   - the four compressed sparse layouts: compressed indices, plain indices, values;
//   - quantized: the integers behind it, and for quantization by channel scales and zero points;
//   - nested: the buffer. Its tables of sizes, strides and offsets are host memory on any device.
// A launch exchanges them component by component: the twin of such a device tensor is a CPU tensor
// of twins, and such a result becomes a device tensor of the components handed over. Nothing is
// copied.
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

// A tensor of the same kind and sizes on `device`, of the components that `map` gives.
at::Tensor map_components(const at::Tensor &tensor, c10::Device device, MemberMap map);

// Makes `to`, on a device, what a kernel made of its twin: sizes, and the components that `map`
// gives.
void assign_components(const at::Tensor &to, const at::Tensor &twin, MemberMap map);

// The integers behind a quantized tensor: a dense tensor over the same storage.
at::Tensor integers_of(const at::Tensor &quantized);

// A quantizer of the same scheme whose scales and zero points, if they are tensors, are those that
// `map` gives.
at::QuantizerPtr map_quantizer(const at::QuantizerPtr &quantizer, MemberMap map);

} // namespace openreg
