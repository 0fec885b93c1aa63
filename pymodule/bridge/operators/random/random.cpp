#include "operators/random/random.h"

#include <ATen/MemoryOverlap.h>

#include <vector>

#include "launch/by_dtype.h"
#include "memory/allocation/memory.h"

namespace openreg {

openreg_type random_type(const at::Tensor &tensor, const char *kernel) {
  switch (tensor.scalar_type()) {
  case at::kByte:
    return OPENREG_UINT8;
  case at::kChar:
    return OPENREG_INT8;
  case at::kShort:
    return OPENREG_INT16;
  case at::kInt:
    return OPENREG_INT32;
  case at::kLong:
    return OPENREG_INT64;
  case at::kUInt16:
    return OPENREG_UINT16;
  case at::kUInt32:
    return OPENREG_UINT32;
  case at::kUInt64:
    return OPENREG_UINT64;
  case at::kBool:
    return OPENREG_BOOL;
  case at::kHalf:
    return OPENREG_FLOAT16;
  case at::kBFloat16:
    return OPENREG_BFLOAT16;
  case at::kFloat:
    return OPENREG_FLOAT32;
  case at::kDouble:
    return OPENREG_FLOAT64;
  default:
    refuse_kernel_dtype(kernel, tensor.scalar_type());
  }
}

openreg_grid grid_of(c10::Device device) {
  static const auto grids = [] {
    int count = 0;
    check(openreg_device_count(&count));
    std::vector<openreg_grid> all;
    for (int i = 0; i < count; ++i) {
      openreg_device_properties properties;
      check(openreg_device_get_properties(i, &properties));
      all.push_back({properties.profile.multiprocessor_count,
                     properties.profile.max_threads_per_multiprocessor});
    }
    return all;
  }();
  return grids[device.index()];
}

Output::Output(const at::Tensor &tensor, const char *kernel)
    : address_(nullptr), type_(random_type(tensor, kernel)), sizes_(tensor.sizes()),
      strides_(tensor.strides()) {
  at::assert_no_internal_overlap(tensor);
  address_ = kernel_address(tensor.mutable_data_ptr());
}

void check_floating(const at::Tensor &tensor, const char *kernel) {
  if (!tensor.is_floating_point()) {
    refuse_kernel_dtype(kernel, tensor.scalar_type());
  }
}

} // namespace openreg
