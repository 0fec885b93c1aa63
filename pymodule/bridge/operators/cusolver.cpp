// What cuSOLVER decides: drivers and layouts. The argument `driver` names a routine of a library,
// and GPUs have others than the CPU. Least squares have one there, gels, which LAPACK has too. In
// openreg mode they have all of LAPACK's. The results of singular value decompositions do not
// depend on the driver, so the CPU's kernel chooses.

#include <ATen/Operators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <string_view>

#include "core/device_type.h"
#include "core/registration.h"
#include "launch/typed.h"

namespace openreg {

namespace ops = at::_ops;

namespace {

using Driver = std::optional<std::string_view>;

std::tuple<at::Tensor &, at::Tensor &, at::Tensor &, at::Tensor &>
lstsq_out(const at::Tensor &a, const at::Tensor &b, std::optional<double> rcond, Driver driver,
          at::Tensor &solution, at::Tensor &residuals, at::Tensor &rank,
          at::Tensor &singular_values) {
  if (!in_cuda_mode()) {
    return typed<ops::linalg_lstsq_out>(a, b, rcond, driver, solution, residuals, rank,
                                        singular_values);
  }
  if (driver) {
    std::string name(*driver);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    TORCH_CHECK(name == "gels",
                "torch.linalg.lstsq: `driver` other than `gels` is not supported on CUDA");
  }
  return typed<ops::linalg_lstsq_out>(a, b, rcond, "gels", solution, residuals, rank,
                                      singular_values);
}

void check_svd_driver(const at::Tensor &a, Driver driver) {
  TORCH_CHECK(!driver || a.numel() == 0 || *driver == "gesvd" || *driver == "gesvdj" ||
                  *driver == "gesvda",
              "torch.linalg.svd: unknown svd driver ", *driver,
              " in svd_cusolver computation. Check doc at "
              "https://pytorch.org/docs/stable/generated/torch.linalg.svd.html");
}

at::Tensor empty_by_columns(at::IntArrayRef sizes, const at::TensorOptions &options) {
  c10::SmallVector<int64_t, 5> strides(sizes.size(), 1);
  strides.back() = std::max<int64_t>(sizes.end()[-2], 1);
  auto stride = strides.back() * std::max<int64_t>(sizes.back(), 1);
  for (auto i = sizes.size() - 2; i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  return at::empty_strided(sizes, strides, options);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> svd(const at::Tensor &a, bool full_matrices,
                                                   bool compute_uv, Driver driver) {
  check_svd_driver(a, driver);
  if (!in_cuda_mode() || !compute_uv || a.dim() < 2) {
    return typed<ops::_linalg_svd>(a, full_matrices, compute_uv, std::nullopt);
  }
  // cuSOLVER's second matrix is stored by rows, LAPACK's by columns.
  const auto rows = a.size(-2), columns = a.size(-1), count = std::min(rows, columns);
  c10::SmallVector<int64_t, 5> sizes(a.sizes());
  sizes.back() = full_matrices ? rows : count;
  auto u = empty_by_columns(sizes, a.options());
  sizes.end()[-2] = full_matrices ? columns : count;
  sizes.back() = columns;
  auto vh = at::empty(sizes, a.options());
  sizes.pop_back();
  sizes.back() = count;
  auto s = at::empty(sizes, a.options().dtype(c10::toRealValueType(a.scalar_type())));
  typed<ops::_linalg_svd_U>(a, full_matrices, compute_uv, std::nullopt, u, s, vh);
  return {u, s, vh};
}

std::tuple<at::Tensor &, at::Tensor &, at::Tensor &> svd_out(const at::Tensor &a,
                                                             bool full_matrices, bool compute_uv,
                                                             Driver driver, at::Tensor &u,
                                                             at::Tensor &s, at::Tensor &vh) {
  check_svd_driver(a, driver);
  return typed<ops::_linalg_svd_U>(a, full_matrices, compute_uv, std::nullopt, u, s, vh);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("linalg_lstsq.out", &lstsq_out);
  library.impl("_linalg_svd", &svd);
  library.impl("_linalg_svd.U", &svd_out);
}

} // namespace openreg
