// The TensorImpl classes of composite tensors (tensor/composite.h): access to their components, and
// making a tensor from components. PyTorch's own functions for this choose a device, or copy.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/DispatchKeySet.h>

namespace openreg {

// ---- quantized ----------------------------------------------------------------------------------

at::QuantizerPtr quantizer_of(const at::Tensor &quantized);

// Makes a quantized tensor over the storage of `integers`, with their sizes.
at::Tensor make_quantized(c10::DispatchKeySet keys, caffe2::TypeMeta dtype,
                          const at::Tensor &integers, at::QuantizerPtr quantizer);

// Replaces the integers and the quantizer of `quantized`.
void set_quantized(const at::Tensor &quantized, const at::Tensor &integers,
                   at::QuantizerPtr quantizer);

// ---- nested -------------------------------------------------------------------------------------

struct NestedTables {
  at::Tensor sizes, strides, offsets;
};

NestedTables nested_tables(const at::Tensor &nested);
at::Tensor make_nested(at::Tensor buffer, NestedTables tables);

// ---- sparse: COO, and the four compressed layouts -----------------------------------------------

// Makes an empty tensor for assign_sparse().
at::Tensor make_sparse(c10::DispatchKeySet keys, c10::Device device, c10::Layout layout,
                       caffe2::TypeMeta dtype);

// Gives `to` the sizes of `from`, and the members that `map` returns for those of `from`.
void assign_sparse(const at::Tensor &to, const at::Tensor &from,
                   c10::function_ref<at::Tensor(const at::Tensor &)> map);

} // namespace openreg
