// Nested tensors: the operators that choose a device, draw random numbers, or read the tables of
// sizes, which are host memory on any device. PyTorch composes them of operators on the buffer. The
// others are launches of the CPU's kernels (boxed.cpp).

#include <ATen/ops/_nested_from_padded_native.h>
#include <ATen/ops/_nested_tensor_size_native.h>
#include <ATen/ops/_nested_tensor_storage_offsets_native.h>
#include <ATen/ops/_nested_tensor_strides_native.h>
#include <ATen/ops/_nested_view_from_buffer_native.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/native_dropout_native.h>
#include <ATen/ops/normal_native.h>
#include <torch/library.h>

namespace openreg {

namespace {

// Loading with a map_location moves the tables to the device as well.
at::Tensor view_from_buffer(const at::Tensor &buffer, const at::Tensor &sizes,
                            const at::Tensor &strides, const at::Tensor &offsets) {
  return at::native::_nested_view_from_buffer(buffer, sizes.cpu(), strides.cpu(), offsets.cpu());
}

at::Tensor from_padded(const at::Tensor &padded, const at::Tensor &sizes,
                       bool fuse_transform_0213) {
  return at::native::nested_from_padded_generic(padded, sizes.cpu(), fuse_transform_0213);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, library) {
  library.impl("_nested_tensor_size", &at::native::_nested_tensor_size);
  library.impl("_nested_tensor_storage_offsets", &at::native::_nested_tensor_storage_offsets);
  library.impl("_nested_tensor_strides", &at::native::_nested_tensor_strides);
  library.impl("_to_copy", &at::native::_to_copy_nested);
  library.impl("copy_", &at::native::copy_nested_);
  library.impl("empty_like", &at::native::empty_like_nested);
  library.impl("native_dropout", &at::native::native_dropout_nested);
  library.impl("normal_", &at::native::normal_nested_);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_nested_from_padded", &from_padded);
  library.impl("_nested_view_from_buffer", &view_from_buffer);
}

} // namespace openreg
