// LU decomposition without pivoting, which PyTorch supports on CUDA but not on the CPU.

#include <ATen/Operators.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <tuple>

#include "core/registration.h"
#include "launch/typed.h"
#include "operators/composed.h"

namespace openreg {

namespace ops = at::_ops;

namespace {

std::tuple<at::Tensor, at::Tensor, at::Tensor> lu_factor_plain(const at::Tensor &matrices) {
  TORCH_CHECK(matrices.dim() >= 2, "linalg.lu_factor: The input tensor A must have at least 2 "
                                   "dimensions.");
  const auto rows = matrices.size(-2), columns = matrices.size(-1), rank = std::min(rows, columns);
  auto lu = matrices.mT().clone(at::MemoryFormat::Contiguous).mT(); // column-major, as LAPACK's
  const auto batch = matrices.sizes().slice(0, static_cast<size_t>(matrices.dim() - 2));
  auto info = at::zeros(batch, matrices.options().dtype(at::kInt));
  for (int64_t i = 0; i < rank; ++i) {
    const auto pivot = lu.narrow(-2, i, 1).narrow(-1, i, 1);
    const auto below = lu.narrow(-2, i + 1, rows - i - 1);
    const auto factors = below.narrow(-1, i, 1).div_(pivot);
    below.narrow(-1, i + 1, columns - i - 1)
        .sub_(factors.mul(lu.narrow(-2, i, 1).narrow(-1, i + 1, columns - i - 1)));
    const auto is_first = info.eq(0).logical_and_(pivot.squeeze(-1).squeeze(-1).eq(0));
    info.masked_fill_(is_first, i + 1);
  }
  c10::SmallVector<int64_t, 4> sizes(batch.begin(), batch.end());
  sizes.push_back(rank);
  const auto identity = at::arange(1, rank + 1, info.options());
  return {lu, identity.expand(sizes).clone(at::MemoryFormat::Contiguous), info};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lu_factor_ex(const at::Tensor &matrices, bool pivot,
                                                            bool check_errors) {
  if (pivot) [[likely]] {
    return typed<ops::linalg_lu_factor_ex>(matrices, pivot, check_errors);
  }
  auto factored = lu_factor_plain(matrices);
  if (check_errors) {
    at::_linalg_check_errors(std::get<2>(factored), "torch.linalg.lu_factor_ex",
                             matrices.dim() == 2);
  }
  return factored;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lu(const at::Tensor &matrices, bool pivot) {
  if (pivot) [[likely]] {
    return typed<ops::linalg_lu>(matrices, pivot);
  }
  const auto factored = std::get<0>(lu_factor_plain(matrices));
  const auto rank = std::min(matrices.size(-2), matrices.size(-1));
  auto lower = factored.narrow(-1, 0, rank).tril(-1);
  lower.diagonal(0, -2, -1).fill_(1);
  return {at::empty({0}, matrices.options()), lower, factored.narrow(-2, 0, rank).triu()};
}

using ThreeResults = std::tuple<at::Tensor &, at::Tensor &, at::Tensor &>;

// `flags`: how many arguments are between the matrices and the results.
void check_devices(const char *name, const at::Tensor &matrices, int flags, const at::Tensor &one,
                   const at::Tensor &two, const at::Tensor &three) {
  ArgumentDevices devices(name, "out");
  devices.check(matrices);
  for (int i = 0; i < flags; ++i) {
    devices.skip();
  }
  for (const auto *result : {&one, &two, &three}) {
    devices.check(*result);
  }
  devices.index(); // raises for tensors on different devices
}

ThreeResults into_three(at::Tensor &one, at::Tensor &two, at::Tensor &three,
                        const std::tuple<at::Tensor, at::Tensor, at::Tensor> &results) {
  into(one, std::get<0>(results));
  into(two, std::get<1>(results));
  into(three, std::get<2>(results));
  return {one, two, three};
}

ThreeResults lu_factor_ex_out(const at::Tensor &matrices, bool pivot, bool check_errors,
                              at::Tensor &lu, at::Tensor &pivots, at::Tensor &info) {
  if (pivot) [[likely]] {
    return typed<ops::linalg_lu_factor_ex_out>(matrices, pivot, check_errors, lu, pivots, info);
  }
  check_devices("aten::linalg_lu_factor_ex", matrices, 2, lu, pivots, info);
  return into_three(lu, pivots, info, lu_factor_ex(matrices, pivot, check_errors));
}

ThreeResults lu_out(const at::Tensor &matrices, bool pivot, at::Tensor &permutation,
                    at::Tensor &lower, at::Tensor &upper) {
  if (pivot) [[likely]] {
    return typed<ops::linalg_lu_out>(matrices, pivot, permutation, lower, upper);
  }
  check_devices("aten::linalg_lu", matrices, 1, permutation, lower, upper);
  return into_three(permutation, lower, upper, lu(matrices, pivot));
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("linalg_lu", &lu);
  library.impl("linalg_lu.out", &lu_out);
  library.impl("linalg_lu_factor_ex", &lu_factor_ex);
  library.impl("linalg_lu_factor_ex.out", &lu_factor_ex_out);
}

} // namespace openreg
