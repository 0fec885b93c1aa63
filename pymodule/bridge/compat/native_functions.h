// Helper functions of PyTorch's own kernels: checks, resizing, filling. They are not a public
// interface of PyTorch.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/native/ForeachUtils.h>
#include <ATen/native/RangeUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>

namespace openreg::native {

using at::native::can_use_fast_route;
using at::native::check_fast_path_restrictions;
using at::native::check_foreach_api_restrictions;
using at::native::check_supported_max_int_with_precision;
using at::native::checkSetStorage;
using at::native::compute_arange_size;
using at::native::fill_empty_deterministic_;
using at::native::fill_resize_deterministic_;
using at::native::resize_output;
using at::native::ZeroTensorAllocator;

} // namespace openreg::native
