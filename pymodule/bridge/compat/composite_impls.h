// The classes behind tensors that are made of dense ones: what they keep, and how one is made with
// no more than its components. PyTorch's own functions for it choose a device, or copy.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/DispatchKeySet.h>

namespace openreg {

// ---- quantized ----------------------------------------------------------------------------------

at::QuantizerPtr quantizer_of(const at::Tensor &quantized);

// Over the storage of `integers`, with their sizes.
at::Tensor make_quantized(c10::DispatchKeySet keys, caffe2::TypeMeta dtype,
                          const at::Tensor &integers, at::QuantizerPtr quantizer);

// Makes `quantized` one of other integers.
void set_quantized(const at::Tensor &quantized, const at::Tensor &integers,
                   at::QuantizerPtr quantizer);

// ---- nested -------------------------------------------------------------------------------------

struct NestedTables {
  at::Tensor sizes, strides, offsets;
};

NestedTables nested_tables(const at::Tensor &nested);
at::Tensor make_nested(at::Tensor buffer, NestedTables tables);

// ---- sparse: COO, and the four compressed layouts -----------------------------------------------

// Of no size, to be assigned to.
at::Tensor make_sparse(c10::DispatchKeySet keys, c10::Device device, c10::Layout layout,
                       caffe2::TypeMeta dtype);

// Makes `to` what `from` is, of the members that `map` gives for those of `from`.
void assign_sparse(const at::Tensor &to, const at::Tensor &from,
                   c10::function_ref<at::Tensor(const at::Tensor &)> map);

} // namespace openreg
