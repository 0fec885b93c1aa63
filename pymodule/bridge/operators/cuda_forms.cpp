// Overloads that PyTorch has for CUDA but not for the CPU: results of another dtype than the
// arguments', computed in the wider dtype and rounded once, and queries about CUDA's libraries. And
// operators that CUDA has in another form than the CPU: the product of integers, for which CUDA's
// library has more conditions, and shuffles of pixels and channels, which CUDA does with views and
// a copy, so that the result is contiguous.

#include <ATen/Operators.h>

#include "compat/native_kernels.h"
#include "core/registration.h"
#include "launch/typed.h"
#include "operators/composed.h"

namespace openreg {

namespace ops = at::_ops;

namespace {

// ---- matrix products with an out_dtype ----------------------------------------------------------

void check_product_dtype(const at::Tensor &self, at::ScalarType dtype) {
  const auto own = self.scalar_type();
  TORCH_CHECK(dtype == own || (dtype == at::kFloat && (own == at::kHalf || own == at::kBFloat16)),
              "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs");
}

at::Tensor in(at::ScalarType dtype, const at::Tensor &tensor) {
  return tensor.scalar_type() == dtype ? tensor : tensor.to(dtype);
}

at::Tensor mm_dtype(const at::Tensor &self, const at::Tensor &other, at::ScalarType dtype) {
  check_product_dtype(self, dtype);
  return typed<ops::mm>(in(dtype, self), in(dtype, other));
}

at::Tensor bmm_dtype(const at::Tensor &self, const at::Tensor &other, at::ScalarType dtype) {
  check_product_dtype(self, dtype);
  return typed<ops::bmm>(in(dtype, self), in(dtype, other));
}

at::Tensor addmm_dtype(const at::Tensor &self, const at::Tensor &one, const at::Tensor &other,
                       at::ScalarType dtype, const at::Scalar &beta, const at::Scalar &alpha) {
  check_product_dtype(one, dtype);
  return typed<ops::addmm>(in(dtype, self), in(dtype, one), in(dtype, other), beta, alpha);
}

at::Tensor baddbmm_dtype(const at::Tensor &self, const at::Tensor &one, const at::Tensor &other,
                         at::ScalarType dtype, const at::Scalar &beta, const at::Scalar &alpha) {
  check_product_dtype(one, dtype);
  return typed<ops::baddbmm>(in(dtype, self), in(dtype, one), in(dtype, other), beta, alpha);
}

at::Tensor &mm_dtype_out(const at::Tensor &self, const at::Tensor &other, at::ScalarType dtype,
                         at::Tensor &out) {
  return into(out, mm_dtype(self, other, dtype));
}

at::Tensor &bmm_dtype_out(const at::Tensor &self, const at::Tensor &other, at::ScalarType dtype,
                          at::Tensor &out) {
  return into(out, bmm_dtype(self, other, dtype));
}

at::Tensor &addmm_dtype_out(const at::Tensor &self, const at::Tensor &one, const at::Tensor &other,
                            at::ScalarType dtype, const at::Scalar &beta, const at::Scalar &alpha,
                            at::Tensor &out) {
  return into(out, addmm_dtype(self, one, other, dtype, beta, alpha));
}

at::Tensor &baddbmm_dtype_out(const at::Tensor &self, const at::Tensor &one,
                              const at::Tensor &other, at::ScalarType dtype, const at::Scalar &beta,
                              const at::Scalar &alpha, at::Tensor &out) {
  return into(out, baddbmm_dtype(self, one, other, dtype, beta, alpha));
}

// ---- products of 8-bit integers -----------------------------------------------------------------

// CUDA's checks, in its words.
void check_int_mm(const at::Tensor &self, const at::Tensor &other) {
  TORCH_CHECK(self.dim() == 2, "Expected self to be of dimension 2 but got ", self.dim());
  TORCH_CHECK(other.dim() == 2, "Expected mat2 to be of dimension 2 but got ", other.dim());
  const auto rows = self.size(0), inner = self.size(1), columns = other.size(1);
  TORCH_CHECK(rows > 16, "self.size(0) needs to be greater than 16, but got ", rows);
  TORCH_CHECK(inner > 0 && inner % 8 == 0,
              "self.size(1) needs to be greater than 0 and a multiple of 8, but got ", inner);
  TORCH_CHECK(inner == other.size(0), "self.size(1) needs to match mat2.size(0) but got ", inner,
              " and ", other.size(0));
  TORCH_CHECK(columns > 0 && columns % 8 == 0,
              "mat2.size(1) needs to be greater than 0 and a multiple of 8, but got ", columns);
}

void check_int8(const at::Tensor &self, const at::Tensor &other) {
  for (const auto *tensor : {&self, &other}) {
    TORCH_CHECK(tensor->scalar_type() == at::kChar, "expected scalar type Char but found ",
                tensor->scalar_type());
  }
}

at::Tensor int_mm(const at::Tensor &self, const at::Tensor &other) {
  check_int_mm(self, other);
  check_int8(self, other);
  return typed<ops::_int_mm>(self, other);
}

at::Tensor &int_mm_out(const at::Tensor &self, const at::Tensor &other, at::Tensor &out) {
  check_int_mm(self, other);
  TORCH_CHECK(out.dtype() == at::kInt, "Expected result dtype to be of type kInt but got ",
              out.dtype());
  TORCH_CHECK(out.dim() == 2, "Expected result to be of dimension 2 but got ", out.dim());
  TORCH_CHECK(out.size(0) == self.size(0), "Expected result.size(0) to be ", self.size(0),
              " but got ", out.size(0));
  TORCH_CHECK(out.size(1) == other.size(1), "Expected result.size(1) to be ", other.size(1),
              " but got ", out.size(1));
  TORCH_CHECK(out.is_contiguous(), "Expected result to be contiguous.");
  check_int8(self, other);
  return typed<ops::_int_mm_out>(self, other, out);
}

// ---- softmax of half precision with a float32 result --------------------------------------------

template <class Op>
at::Tensor softmax(const at::Tensor &self, int64_t dimension, bool half_to_float) {
  if (!half_to_float) [[likely]] {
    return typed<Op>(self, dimension, false);
  }
  TORCH_CHECK(self.scalar_type() == at::kHalf || self.scalar_type() == at::kBFloat16,
              "conversion is supported for Half and BFloat16 type only");
  return typed<Op>(self.to(at::kFloat), dimension, false);
}

template <class Op>
at::Tensor softmax_backward(const at::Tensor &gradient, const at::Tensor &output, int64_t dimension,
                            at::ScalarType input_dtype) {
  if (gradient.scalar_type() == input_dtype) [[likely]] {
    return typed<Op>(gradient, output, dimension, input_dtype);
  }
  return in(input_dtype, typed<Op>(gradient, output, dimension, gradient.scalar_type()));
}

// ---- queries ------------------------------------------------------------------------------------

// Whether cuDNN or MIOpen computes the loss: never, because the devices have neither.
bool use_library_with_lengths(const at::Tensor &, const at::Tensor &, at::IntArrayRef,
                              at::IntArrayRef, int64_t) {
  return false;
}

bool use_library_with_tensors(const at::Tensor &, const at::Tensor &, const at::Tensor &,
                              const at::Tensor &, int64_t) {
  return false;
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("mm.dtype", &mm_dtype);
  library.impl("mm.dtype_out", &mm_dtype_out);
  library.impl("bmm.dtype", &bmm_dtype);
  library.impl("bmm.dtype_out", &bmm_dtype_out);
  library.impl("addmm.dtype", &addmm_dtype);
  library.impl("addmm.dtype_out", &addmm_dtype_out);
  library.impl("baddbmm.dtype", &baddbmm_dtype);
  library.impl("baddbmm.dtype_out", &baddbmm_dtype_out);
  library.impl("_int_mm", &int_mm);
  library.impl("_int_mm.out", &int_mm_out);
  library.impl("pixel_shuffle", &native::math_pixel_shuffle);
  library.impl("pixel_unshuffle", &native::math_pixel_unshuffle);
  library.impl("native_channel_shuffle", &native::math_channel_shuffle);
  library.impl("channel_shuffle", &native::channel_shuffle);
  library.impl("_softmax", &softmax<ops::_softmax>);
  library.impl("_log_softmax", &softmax<ops::_log_softmax>);
  library.impl("_softmax_backward_data", &softmax_backward<ops::_softmax_backward_data>);
  library.impl("_log_softmax_backward_data", &softmax_backward<ops::_log_softmax_backward_data>);
  library.impl("_use_cudnn_ctc_loss", &use_library_with_lengths);
  library.impl("_use_cudnn_ctc_loss.Tensor", &use_library_with_tensors);
  library.impl("_use_miopen_ctc_loss", &use_library_with_lengths);
  library.impl("_use_miopen_ctc_loss.Tensor", &use_library_with_tensors);
}

} // namespace openreg
