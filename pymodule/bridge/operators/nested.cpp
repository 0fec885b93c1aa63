// Nested tensors: operators that choose a device, draw random numbers, or read the tables of sizes,
// which are host memory on any device. PyTorch implements them by operators on the buffer. All
// others are boxed launches (launch/boxed.cpp).

#include "compat/native_kernels.h"
#include "core/registration.h"

namespace openreg {

namespace {

// torch.load with a map_location moves the tables to the device, too, so they are moved back.
at::Tensor view_from_buffer(const at::Tensor &buffer, const at::Tensor &sizes,
                            const at::Tensor &strides, const at::Tensor &offsets) {
  return native::_nested_view_from_buffer(buffer, sizes.cpu(), strides.cpu(), offsets.cpu());
}

at::Tensor from_padded(const at::Tensor &padded, const at::Tensor &sizes,
                       bool fuse_transform_0213) {
  return native::nested_from_padded_generic(padded, sizes.cpu(), fuse_transform_0213);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, nested, library) {
  library.impl("_nested_tensor_size", &native::_nested_tensor_size);
  library.impl("_nested_tensor_storage_offsets", &native::_nested_tensor_storage_offsets);
  library.impl("_nested_tensor_strides", &native::_nested_tensor_strides);
  library.impl("_to_copy", &native::_to_copy_nested);
  library.impl("copy_", &native::copy_nested_);
  library.impl("empty_like", &native::empty_like_nested);
  library.impl("native_dropout", &native::native_dropout_nested);
  library.impl("normal_", &native::normal_nested_);
}

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("_nested_from_padded", &from_padded);
  library.impl("_nested_view_from_buffer", &view_from_buffer);
}

} // namespace openreg
