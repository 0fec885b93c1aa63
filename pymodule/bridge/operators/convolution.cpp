// Convolution. PyTorch calls convolution_overrideable of out-of-tree backends. The CPU's kernel
// then chooses the implementation itself: oneDNN, native or depthwise.

#include <ATen/core/Tensor.h>
#include <ATen/TracerMode.h>
#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/convolution_ops.h>

#include <algorithm>

#include "compat/native_kernels.h"
#include "core/registration.h"
#include "launch/by_dtype.h"
#include "launch/typed.h"

namespace openreg {

namespace {

// CUDA checks types before devices, and its error names the types.
void check_same_type(const at::Tensor &input, const at::Tensor &other, const char *name) {
  if (input.dtype() == other.dtype() && input.key_set() == other.key_set()) [[likely]] {
    return;
  }
  TORCH_CHECK(input.is_mkldnn() || input.options().type_equal(other.options()), "Input type (",
              input.toString(), ") and ", name, " type (", other.toString(),
              ") should be the same");
}

// The name, in error messages, of CUDA's kernel for a convolution without cuDNN.
const char *cuda_name(const at::Tensor &input, const at::Tensor &weight,
                      c10::SymIntArrayRef dilation, bool transposed, const c10::SymInt &groups) {
  const bool is_flat = weight.dim() <= 4; // CUDA computes one dimension as two
  const bool is_dilated = std::ranges::any_of(dilation, [](const auto &each) { return each != 1; });
  if (transposed) {
    return is_flat ? "slow_conv_transpose2d_out_cuda" : "slow_conv_transpose3d_out_cuda";
  }
  if (groups > 1 && groups == input.sym_size(1) && weight.sym_size(0) % groups == 0) {
    return is_flat ? "conv_depthwise2d_forward_cuda" : "conv_depthwise3d";
  }
  return is_flat && !is_dilated ? "slow_conv2d_cuda" : "slow_conv_dilated<>";
}

// CUDA supports convolutions of floating-point numbers only.
void check_dtype(const at::Tensor &input, const at::Tensor &weight, c10::SymIntArrayRef dilation,
                 bool transposed, const c10::SymInt &groups) {
  if (c10::isIntegralType(input.scalar_type(), /*includeBool=*/true) &&
      input.scalar_type() == weight.scalar_type() && input.numel() > 0) [[unlikely]] {
    refuse_kernel_dtype(cuda_name(input, weight, dilation, transposed, groups),
                        input.scalar_type());
  }
}

// A trace records convolution as its composite, _convolution, on every backend. So under the tracer
// this calls the composite, which calls convolution_overrideable.
at::Tensor convolution(const at::Tensor &input, const at::Tensor &weight,
                       const std::optional<at::Tensor> &bias, c10::SymIntArrayRef stride,
                       c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
                       c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  check_same_type(input, weight, "weight");
  if (bias.has_value() && bias->defined()) {
    check_same_type(input, *bias, "bias");
  }
  check_dtype(input, weight, dilation, transposed, groups);
  if (at::tracer::impl::is_dispatch_enabled()) [[unlikely]] {
    return native::convolution(input, weight, bias, C10_AS_INTARRAYREF_SLOW(stride),
                               C10_AS_INTARRAYREF_SLOW(padding), C10_AS_INTARRAYREF_SLOW(dilation),
                               transposed, C10_AS_INTARRAYREF_SLOW(output_padding),
                               groups.guard_int(__FILE__, __LINE__));
  }
  return typed_by_dtype<at::_ops::convolution>(input, weight, bias, stride, padding, dilation,
                                               transposed, output_padding, std::move(groups));
}

at::Tensor convolution_overrideable(const at::Tensor &input, const at::Tensor &weight,
                                    const std::optional<at::Tensor> &bias,
                                    c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                                    c10::SymIntArrayRef dilation, bool transposed,
                                    c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  check_dtype(input, weight, dilation, transposed, groups);
  return typed_by_dtype<at::_ops::convolution>(input, weight, bias, stride, padding, dilation,
                                               transposed, output_padding, std::move(groups));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor>
convolution_backward(const at::Tensor &grad_output, const at::Tensor &input,
                     const at::Tensor &weight, c10::SymIntArrayRef stride,
                     c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
                     c10::SymIntArrayRef output_padding, c10::SymInt groups,
                     std::array<bool, 3> output_mask) {
  const c10::SymInt channels = weight.size(transposed ? 1 : 0) * (transposed ? groups : 1);
  return typed_by_dtype<at::_ops::convolution_backward>(
      grad_output, input, weight, at::OptionalSymIntArrayRef(channels), stride, padding, dilation,
      transposed, output_padding, std::move(groups), output_mask);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  // The operator itself, so that PyTorch does not choose an implementation first.
  library.impl("convolution", &convolution);
  library.impl("convolution_backward", typed_by_dtype<at::_ops::convolution_backward>);
  // Its overrideable form, for direct calls.
  library.impl("convolution_overrideable", &convolution_overrideable);
  library.impl("convolution_backward_overrideable", &convolution_backward);
}

} // namespace openreg
