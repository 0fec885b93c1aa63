// Operators in dtypes that CUDA supports and the CPU does not, for which computing in a wider dtype
// (compat/cuda_dtypes.h) would give other numbers or fail.

#include <ATen/Context.h>
#include <ATen/Operators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "core/registration.h"
#include "launch/by_dtype.h"
#include "launch/host_operator.h"
#include "launch/typed.h"
#include "operators/composed.h"
#include "streams/sync_debug.h"

namespace openreg {

namespace {

namespace ops = at::_ops;

// ---- operators that only move integers ----------------------------------------------------------

// The CPU's kernel moves floating-point numbers without changing their bits. So integers are
// reinterpreted as floating-point numbers of the same size; narrower ones are converted.
at::ScalarType carrier(at::ScalarType dtype) {
  return dtype == at::kLong ? at::kDouble : at::kFloat;
}

bool is_carried(const at::Tensor &self) {
  return c10::isIntegralType(self.scalar_type(), /*includeBool=*/false);
}

at::Tensor carried(const at::Tensor &self) {
  const auto dtype = carrier(self.scalar_type());
  return self.element_size() >= 4 ? self.view(dtype) : self.to(dtype);
}

at::Tensor delivered(const at::Tensor &result, at::ScalarType dtype) {
  return c10::elementSize(dtype) >= 4 ? result.view(dtype) : result.to(dtype);
}

// The result is contiguous, as on CUDA. The CPU's kernel keeps the layout of its argument.
template <class Op, class... Args>
at::Tensor max_unpool(const at::Tensor &self, const at::Tensor &indices, Args... args) {
  const auto dense = self.contiguous();
  if (!is_carried(self)) [[likely]] {
    return typed<Op>(dense, indices, args...);
  }
  return delivered(typed<Op>(carried(dense), indices, args...), self.scalar_type());
}

template <class Op, class Out, class... Args>
at::Tensor &max_unpool_out(const at::Tensor &self, const at::Tensor &indices, Args... args,
                           at::Tensor &out) {
  if (!is_carried(self)) [[likely]] {
    return typed<Out>(self, indices, args..., out);
  }
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), "max_unpool: Expected out of dtype ",
              self.scalar_type(), ", but got ", out.scalar_type());
  return into(out, max_unpool<Op, Args...>(self, indices, args...));
}

// ---- histograms of integers ---------------------------------------------------------------------

// Computes in integers like CUDA's, so that bin numbers round down exactly. An empty range stands
// for the range of the numbers.
at::Tensor histogram_on_host(const at::Tensor &self, int64_t bins, const at::Scalar &least,
                             const at::Scalar &most) {
  const HostKernel kernel;
  auto from = least.to<int64_t>(), to = most.to<int64_t>();
  if (from == to && self.numel() > 0) {
    from = self.min().item<int64_t>();
    to = self.max().item<int64_t>();
  }
  if (from == to) {
    --from;
    ++to;
  }
  const auto numbers = self.reshape(-1).to(at::kLong);
  const auto counted = numbers.ge(from).logical_and(numbers.le(to));
  const auto places = numbers.sub(from).mul(bins).div(to - from, "floor").clamp(0, bins - 1);
  return at::zeros({bins}, self.options()).index_add_(0, places, counted.to(self.scalar_type()));
}

TORCH_LIBRARY_FRAGMENT(openreg_host, library) {
  library.def("histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor");
}

TORCH_LIBRARY_IMPL(openreg_host, CPU, library) {
  library.impl("histc", &histogram_on_host);
}

at::Tensor histogram(const at::Tensor &self, int64_t bins, const at::Scalar &least,
                     const at::Scalar &most) {
  TORCH_CHECK(bins > 0, "bins must be > 0");
  const auto from = least.to<int64_t>(), to = most.to<int64_t>();
  TORCH_CHECK(from <= to, "max must be larger than min");
  if (from == to && self.numel() > 0) {
    note_sync(self.device().index());
  }
  return launch_host<&histogram_on_host>("openreg_host::histc", self, bins, least, most);
}

// CUDA's checks.
void check_histogram(const at::Tensor &self) {
  if (c10::isReducedFloatingType(self.scalar_type())) {
    refuse_kernel_dtype("histc", self.scalar_type());
  }
  if (self.is_floating_point()) {
    at::globalContext().alertNotDeterministic("_histc_cuda with floating point input");
  }
}

at::Tensor histc(const at::Tensor &self, int64_t bins, const at::Scalar &least,
                 const at::Scalar &most) {
  check_histogram(self);
  if (!is_carried(self)) [[likely]] {
    return typed<ops::histc>(self, bins, least, most);
  }
  return histogram(self, bins, least, most);
}

at::Tensor &histc_out(const at::Tensor &self, int64_t bins, const at::Scalar &least,
                      const at::Scalar &most, at::Tensor &out) {
  check_histogram(self);
  if (!is_carried(self)) [[likely]] {
    return typed<ops::histc_out>(self, bins, least, most, out);
  }
  return into(out, histogram(self, bins, least, most));
}

// ---- sums without NaNs --------------------------------------------------------------------------

// Complex numbers count as 0 if either part is NaN.
at::Tensor without_nans(const at::Tensor &self) {
  return typed<ops::masked_fill_Scalar>(self, typed<ops::isnan>(self), 0);
}

at::Tensor nansum(const at::Tensor &self, at::OptionalIntArrayRef dimensions, bool keep,
                  std::optional<at::ScalarType> dtype) {
  if (!self.is_complex()) [[likely]] {
    return typed<ops::nansum>(self, dimensions, keep, dtype);
  }
  return ops::sum_dim_IntList::redispatch(c10::DispatchKeySet(kDeviceKeys.dense),
                                          without_nans(self), dimensions, keep, dtype);
}

at::Tensor &nansum_out(const at::Tensor &self, at::OptionalIntArrayRef dimensions, bool keep,
                       std::optional<at::ScalarType> dtype, at::Tensor &out) {
  if (!self.is_complex()) [[likely]] {
    return typed<ops::nansum_out>(self, dimensions, keep, dtype, out);
  }
  return ops::sum_IntList_out::redispatch(c10::DispatchKeySet(kDeviceKeys.dense),
                                          without_nans(self), dimensions, keep, dtype, out);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  using Sizes = c10::SymIntArrayRef;
  library.impl("max_unpool2d", &max_unpool<ops::max_unpool2d, Sizes>);
  library.impl("max_unpool2d.out",
               &max_unpool_out<ops::max_unpool2d, ops::max_unpool2d_out, Sizes>);
  using Lengths = at::IntArrayRef;
  library.impl("max_unpool3d", &max_unpool<ops::max_unpool3d, Sizes, Lengths, Lengths>);
  library.impl("max_unpool3d.out",
               &max_unpool_out<ops::max_unpool3d, ops::max_unpool3d_out, Sizes, Lengths, Lengths>);
  library.impl("histc", &histc);
  library.impl("histc.out", &histc_out);
  library.impl("nansum", &nansum);
  library.impl("nansum.out", &nansum_out);
}

} // namespace openreg
