// The function of torch.kaiser_window. The operator is PyTorch's own for every device and calls a
// function of the device directly, through a DispatchStub.

#include <ATen/OpMathType.h>
#include <ATen/TensorIterator.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/special_i0.h>

#include "compat/dispatch_stub.h"
#include "core/registration.h"

namespace openreg {

namespace {

// The iterator has the window, and 0, 1, ... `length` - 1 in its dtype. As on CUDA, half precision
// is computed in float32.
void kaiser_window(at::TensorIteratorBase &iterator, const int64_t length, const double beta) {
  const auto wide = at::toOpMathType(iterator.dtype());
  // From -1 to 1.
  const auto place = iterator.tensor(1).to(wide).mul(2.0 / static_cast<double>(length - 1)).sub(1);
  const auto height = place.mul(place).neg().add(1).clamp_min(0).sqrt();
  const auto top = at::special_i0(at::scalar_tensor(beta, at::kDouble)).item<double>();
  iterator.tensor(0).copy_(at::special_i0(height.mul(beta)).mul(1 / top));
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  (void)library;
  set_device_kernel(at::native::kaiser_window_stub, &kaiser_window);
}

} // namespace openreg
