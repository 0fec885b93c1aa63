// Quantized tensors: operators that choose a device or copy between devices. All others are boxed
// launches (launch/boxed.cpp).

#include <ATen/ops/quantize_per_channel.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <c10/core/DeviceGuard.h>

#include "compat/native_kernels.h"
#include "core/registration.h"
#include "tensor/composite.h"
#include "core/status.h"

namespace openreg {

namespace {

// Quantizes numbers like `like`, on its device.
at::Tensor quantize_like(const at::Tensor &numbers, const at::Tensor &like) {
  const auto there = numbers.to(like.device(), at::kFloat);
  if (like.qscheme() == at::kPerTensorAffine) {
    return at::quantize_per_tensor(there, like.q_scale(), like.q_zero_point(), like.scalar_type());
  }
  return at::quantize_per_channel(there, like.q_per_channel_scales(),
                                  like.q_per_channel_zero_points(), like.q_per_channel_axis(),
                                  like.scalar_type());
}

// Makes the tensor on `device`, regardless of the device of the parameters.
at::Tensor empty_per_channel(c10::IntArrayRef size, const at::Tensor &scales,
                             const at::Tensor &zero_points, int64_t axis,
                             std::optional<c10::ScalarType> dtype,
                             std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                             std::optional<bool> pin_memory,
                             std::optional<c10::MemoryFormat> memory_format) {
  const auto there = device.value_or(scales.device());
  check(openreg_initialize());                 // raises in a forked child
  const c10::OptionalDeviceGuard guard(there); // memory is allocated on the current device
  return native::empty_per_channel_affine_quantized(size, scales.to(there), zero_points.to(there),
                                                    axis, dtype, layout, there, pin_memory,
                                                    memory_format);
}

at::Tensor &copy_(at::Tensor &self, const at::Tensor &source, bool non_blocking) {
  TORCH_CHECK(self.is_quantized(),
              "Copying from quantized Tensor to non-quantized Tensor is not allowed, please use "
              "dequantize to get a float Tensor from a quantized Tensor");
  if (!source.is_quantized()) {
    integers_of(self).copy_(integers_of(quantize_like(source, self)), non_blocking);
    return self;
  }
  TORCH_CHECK(self.qscheme() == source.qscheme(), "Quantized Copy only works with same qscheme");
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "Quantized Copy only works with same scalar type");
  integers_of(self).copy_(integers_of(source), non_blocking);
  at::set_quantizer_(self, map_quantizer(source.quantizer(), [&](const at::Tensor &parameters) {
                       return parameters.to(self.device());
                     }));
  return self;
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, quantized, library) {
  library.impl("_empty_per_channel_affine_quantized", &empty_per_channel);
  library.impl("copy_", &copy_);
  library.impl("empty_like", &native::empty_like_quantized);
  library.impl("empty_quantized", &native::empty_quantized);
}

} // namespace openreg
