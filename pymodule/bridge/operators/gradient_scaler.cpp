// The gradient scaler's two operators, over amp's kernels.

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "../launch.h"
#include "amp.h"

namespace openreg {

namespace {

// A one-element float32 tensor's value, read through the kernel view.
float *number(const at::Tensor &tensor, const char *name) {
  TORCH_CHECK(tensor.numel() == 1, name, " must be a 1-element tensor.");
  TORCH_CHECK(tensor.scalar_type() == at::kFloat, name, " must be a float tensor.");
  auto *address = tensor.mutable_data_ptr();
  return static_cast<float *>(tensor.is_cpu() ? address : kernel_address(address));
}

void unscale(const at::Tensor &gradient, float inverse_scale, float *found_inf) {
  void *data = kernel_address(gradient.mutable_data_ptr());
  const auto count = static_cast<size_t>(gradient.numel());
  switch (gradient.scalar_type()) {
  case at::kHalf:
    return openreg_amp_unscale_f16(static_cast<uint16_t *>(data), count, inverse_scale, found_inf);
  case at::kBFloat16:
    return openreg_amp_unscale_bf16(static_cast<uint16_t *>(data), count, inverse_scale, found_inf);
  case at::kFloat:
    return openreg_amp_unscale_f32(static_cast<float *>(data), count, inverse_scale, found_inf);
  case at::kDouble:
    return openreg_amp_unscale_f64(static_cast<double *>(data), count, inverse_scale, found_inf);
  default:
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "\"_amp_foreach_non_finite_check_and_unscale_openreg\" not implemented for '",
        gradient.scalar_type(), "'");
  }
}

void non_finite_check_and_unscale_(at::TensorList gradients, at::Tensor &found_inf,
                                   const at::Tensor &inverse_scale) {
  LaunchDevice where("aten::_amp_foreach_non_finite_check_and_unscale_", "");
  where.see(found_inf);
  where.see(inverse_scale);
  auto *found = number(found_inf, "found_inf");
  const float scale = *number(inverse_scale, "inv_scale");
  for (const auto &gradient : gradients) {
    where.see(gradient);
    where.index(); // refuses a gradient that is elsewhere
    if (gradient.is_non_overlapping_and_dense()) {
      unscale(gradient, scale, found);
    } else {
      auto dense = gradient.contiguous();
      unscale(dense, scale, found);
      gradient.copy_(dense);
    }
  }
}

at::Tensor &update_scale_(at::Tensor &scale, at::Tensor &growth_tracker,
                          const at::Tensor &found_inf, double growth_factor, double backoff_factor,
                          int64_t growth_interval) {
  LaunchDevice where("aten::_amp_update_scale_", "");
  where.see(scale);
  where.see(growth_tracker);
  where.see(found_inf);
  where.index();
  TORCH_CHECK(growth_tracker.numel() == 1, "growth_tracker must be a 1-element tensor.");
  TORCH_CHECK(growth_tracker.scalar_type() == at::kInt, "growth_tracker must be an int tensor.");
  openreg_amp_update_scale(
      number(scale, "current_scale"),
      static_cast<int32_t *>(kernel_address(growth_tracker.mutable_data_ptr())),
      *number(found_inf, "found_inf"), growth_factor, backoff_factor,
      static_cast<int>(growth_interval));
  return scale;
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_amp_foreach_non_finite_check_and_unscale_", &non_finite_check_and_unscale_);
  library.impl("_amp_update_scale_", &update_scale_);
}

} // namespace openreg
