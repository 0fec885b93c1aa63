// The gradient scaler's two operators. The amp layer's kernels compute them.
//
// Both run in order on the device's current stream without waiting: scaling, unscaling and updating
// the scale need no result on the host.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <atomic>
#include <utility>
#include <vector>

#include "core/registration.h"
#include "launch/by_dtype.h"
#include "launch/argument_devices.h"
#include "streams/inline_guard.h"
#include "tensor/known_values.h"
#include "amp/amp.h"

namespace openreg {

namespace {

// Returns the kernel address of a one-element tensor's value. The error messages are CUDA's.
template <class T> T *number(const at::Tensor &tensor, const char *name, const char *type) {
  TORCH_CHECK(tensor.device().type() == kDeviceType, name,
              in_cuda_mode() ? " must be a CUDA tensor." : " must be an openreg tensor.");
  TORCH_CHECK(tensor.numel() == 1, name, " must be a 1-element tensor.");
  TORCH_CHECK(tensor.scalar_type() == c10::CppTypeToScalarType<T>::value, name, " must be ", type,
              " tensor.");
  return static_cast<T *>(kernel_address(tensor.mutable_data_ptr()));
}

// ---- unscale ------------------------------------------------------------------------------------

// Fewer gradients are not worth another thread. Source: PyTorch's elementwise kernels (GRAIN_SIZE).
constexpr int64_t kGrainSize = 32768;

using Unscale = void (*)(void *gradients, int64_t count, float inverse_scale, float *found_inf);

// Runs one of the amp layer's kernels in parallel on PyTorch's threads.
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

// In a dry run: whether the gradients are left as they are. Those without known values are finite,
// so found_inf stays what it is.
bool skip_unscaling(at::TensorList gradients, const at::Tensor &inverse_scale) {
  KernelAccesses accesses;
  accesses.read(inverse_scale);
  for (const auto &gradient : gradients) {
    accesses.read(gradient);
  }
  return accesses.are_skipped();
}

// One launch for all gradients of a device.
void non_finite_check_and_unscale_(at::TensorList gradients, at::Tensor &found_inf,
                                   const at::Tensor &inverse_scale) {
  if (gradients.empty()) {
    return;
  }
  const auto *scale = number<float>(inverse_scale, "inv_scale", "a float");
  auto *found = number<float>(found_inf, "found_inf", "a float");
  ArgumentDevices devices("aten::_amp_foreach_non_finite_check_and_unscale_", "");
  {
    ArgumentDevices::List list(devices);
    for (const auto &gradient : gradients) {
      list.check(gradient);
    }
  }
  devices.check(found_inf);
  devices.check(inverse_scale);
  const auto device = devices.index(); // raises for a gradient on another device

  std::vector<DenseGradient> all;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies; // contiguous copies of gradients with gaps
  all.reserve(gradients.size());
  for (const auto &gradient : gradients) {
    const bool is_dense = gradient.is_non_overlapping_and_dense();
    const auto &dense =
        is_dense ? gradient : copies.emplace_back(gradient, gradient.contiguous()).second;
    all.push_back(
        {unscale_of(dense.scalar_type()), kernel_address(dense.mutable_data_ptr()), dense.numel()});
  }
  if (is_dry() && skip_unscaling(gradients, inverse_scale)) [[unlikely]] {
    return;
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
  ArgumentDevices devices("aten::_amp_update_scale_", "");
  devices.check(scale);
  devices.check(growth_tracker);
  devices.check(found_inf);
  if (skip_kernel({scale, growth_tracker, found_inf}, {scale, growth_tracker})) {
    return scale;
  }
  run_on_stream(devices.index(), [=] {
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
