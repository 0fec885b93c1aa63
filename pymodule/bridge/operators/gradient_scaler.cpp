// The gradient scaler's two operators, over amp's kernels.
//
// Both are done in the order of the device's current stream, and neither is waited for: scaling,
// unscaling and the update of the scale need no answer on the host.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <atomic>
#include <utility>
#include <vector>

#include "core/registration.h"
#include "launch/by_dtype.h"
#include "launch/launch_device.h"
#include "streams/inline_guard.h"
#include "amp/amp.h"

namespace openreg {

namespace {

// Where kernels find the value of a one-element tensor. Sentences are CUDA's.
template <class T> T *number(const at::Tensor &tensor, const char *name, const char *type) {
  TORCH_CHECK(tensor.device().type() == kDeviceType, name,
              in_cuda_mode() ? " must be a CUDA tensor." : " must be an openreg tensor.");
  TORCH_CHECK(tensor.numel() == 1, name, " must be a 1-element tensor.");
  TORCH_CHECK(tensor.scalar_type() == c10::CppTypeToScalarType<T>::value, name, " must be ", type,
              " tensor.");
  return static_cast<T *>(kernel_address(tensor.mutable_data_ptr()));
}

// ---- unscale ------------------------------------------------------------------------------------

// As few gradients are not worth another thread; the same as for PyTorch's elementwise kernels.
constexpr int64_t kGrainSize = 32768;

using Unscale = void (*)(void *gradients, int64_t count, float inverse_scale, float *found_inf);

// One of amp's kernels, in parts on PyTorch's threads.
template <class T, void (*kernel)(T *, size_t, float, float *)>
void unscale(void *gradients, int64_t count, float inverse_scale, float *found_inf) {
  at::parallel_for(0, count, kGrainSize, [&](int64_t begin, int64_t end) {
    float found = 0;
    kernel(static_cast<T *>(gradients) + begin, static_cast<size_t>(end - begin), inverse_scale,
           &found);
    if (found != 0) {
      std::atomic_ref(*found_inf).store(found, std::memory_order_relaxed);
    }
  });
}

Unscale unscale_of(at::ScalarType dtype) {
  switch (dtype) {
  case at::kHalf:
    return &unscale<uint16_t, &openreg_amp_unscale_f16>;
  case at::kBFloat16:
    return &unscale<uint16_t, &openreg_amp_unscale_bf16>;
  case at::kFloat:
    return &unscale<float, &openreg_amp_unscale_f32>;
  case at::kDouble:
    return &unscale<double, &openreg_amp_unscale_f64>;
  default:
    refuse_kernel_dtype("_amp_foreach_non_finite_check_and_unscale_cuda", dtype);
  }
}

struct DenseGradient {
  Unscale unscale;
  void *data;
  int64_t count;
};

// One launch for all gradients of a device.
void non_finite_check_and_unscale_(at::TensorList gradients, at::Tensor &found_inf,
                                   const at::Tensor &inverse_scale) {
  if (gradients.empty()) {
    return;
  }
  const auto *scale = number<float>(inverse_scale, "inv_scale", "a float");
  auto *found = number<float>(found_inf, "found_inf", "a float");
  LaunchDevice where("aten::_amp_foreach_non_finite_check_and_unscale_", "");
  {
    LaunchDevice::List list(where);
    for (const auto &gradient : gradients) {
      list.see(gradient);
    }
  }
  where.see(found_inf);
  where.see(inverse_scale);
  const auto device = where.index(); // refuses a gradient that is elsewhere

  std::vector<DenseGradient> all;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies; // of gradients with gaps
  all.reserve(gradients.size());
  for (const auto &gradient : gradients) {
    const bool is_dense = gradient.is_non_overlapping_and_dense();
    const auto &dense =
        is_dense ? gradient : copies.emplace_back(gradient, gradient.contiguous()).second;
    all.push_back(
        {unscale_of(dense.scalar_type()), kernel_address(dense.mutable_data_ptr()), dense.numel()});
  }
  run_on_stream(device, [all = std::move(all), scale, found] {
    for (const auto &each : all) {
      each.unscale(each.data, each.count, *scale, found);
    }
  });
  for (const auto &[gradient, dense] : copies) {
    gradient.copy_(dense);
  }
}

// ---- the scale ----------------------------------------------------------------------------------

at::Tensor &update_scale_(at::Tensor &scale, at::Tensor &growth_tracker,
                          const at::Tensor &found_inf, double growth_factor, double backoff_factor,
                          int64_t growth_interval) {
  auto *tracker = number<int32_t>(growth_tracker, "growth_tracker", "an int");
  auto *current = number<float>(scale, "current_scale", "a float");
  const auto *found = number<float>(found_inf, "found_inf", "a float");
  LaunchDevice where("aten::_amp_update_scale_", "");
  where.see(scale);
  where.see(growth_tracker);
  where.see(found_inf);
  run_on_stream(where.index(), [=] {
    openreg_amp_update_scale(current, tracker, *found, growth_factor, backoff_factor,
                             static_cast<int>(growth_interval));
  });
  return scale;
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("_amp_foreach_non_finite_check_and_unscale_", &non_finite_check_and_unscale_);
  library.impl("_amp_update_scale_", &update_scale_);
}

} // namespace openreg
