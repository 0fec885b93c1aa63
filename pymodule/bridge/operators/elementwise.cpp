// Typed launches of the elementwise operators that programs call most. All others use boxed
// launches. Moving an operator here changes its cost and nothing else.

#include <ATen/Operators.h>

#include "core/registration.h"
#include "launch/typed.h"
#include "profiler/memory_note.h"

namespace openreg {

namespace ops = at::_ops;

namespace {

// The kernel compares the addresses of self and out to see whether they are the same object. Boxing
// does not keep addresses.
struct AddrOut : ops::addr_out {
  static constexpr bool kRunsItself = true;
};

at::Tensor &zero_(at::Tensor &self) {
  const MemoryNote note(self);
  return typed<ops::zero_>(self);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  // arithmetic
  register_typed<ops::add_Tensor, ops::add__Tensor, ops::add_out, ops::sub_Tensor, ops::sub__Tensor,
                 ops::sub_out, ops::mul_Tensor, ops::mul__Tensor, ops::mul_out, ops::div_Tensor,
                 ops::div__Tensor, ops::div_out, ops::div_Tensor_mode, ops::rsub_Tensor,
                 ops::pow_Tensor_Scalar, ops::pow_Tensor_Tensor, ops::addcmul, ops::addcmul_,
                 ops::addcdiv, ops::addcdiv_, ops::lerp_Scalar, ops::lerp__Scalar, ops::neg,
                 ops::reciprocal, ops::sgn, AddrOut, ops::remainder_Tensor, ops::maximum,
                 ops::minimum, ops::clamp, ops::clamp_min, ops::clamp_max>(library);
  // functions
  register_typed<ops::exp, ops::log, ops::log1p, ops::sqrt, ops::sqrt_, ops::rsqrt, ops::sin,
                 ops::cos, ops::tanh, ops::sigmoid, ops::erf, ops::sign, ops::floor, ops::ceil,
                 ops::round, ops::isnan>(library);
  // PyTorch's own kernel checks whether the tensor's device has a loop for exact powers
  register_typed<ops::ldexp_Tensor, ops::ldexp_, ops::ldexp_out>(library);
  // comparison and logic
  register_typed<ops::eq_Tensor, ops::eq_Scalar, ops::ne_Tensor, ops::ne_Scalar, ops::lt_Tensor,
                 ops::lt_Scalar, ops::le_Tensor, ops::le_Scalar, ops::gt_Tensor, ops::gt_Scalar,
                 ops::ge_Tensor, ops::ge_Scalar, ops::bitwise_and_Tensor, ops::bitwise_or_Tensor,
                 ops::bitwise_not, ops::logical_not_out, ops::logical_and_out, ops::logical_not,
                 ops::logical_and, ops::logical_or, ops::where_self>(library);
  // filling
  register_typed<ops::fill__Scalar, ops::fill__Tensor, ops::masked_fill__Scalar,
                 ops::masked_fill__Tensor, ops::masked_fill_Scalar, ops::masked_fill_Tensor>(
      library);
  register_one<ops::zero_>(library, &zero_);
  // activations and their gradients
  register_typed<ops::relu, ops::relu_, ops::threshold_backward, ops::gelu, ops::gelu_backward,
                 ops::silu, ops::silu_, ops::silu_backward, ops::leaky_relu,
                 ops::leaky_relu_backward, ops::elu, ops::elu_backward, ops::hardtanh,
                 ops::hardtanh_, ops::hardtanh_backward, ops::hardswish, ops::hardswish_backward,
                 ops::sigmoid_backward, ops::tanh_backward, ops::softplus, ops::softplus_backward,
                 ops::native_dropout_backward>(library);
}

} // namespace openreg
