#include "compat/blas_operators.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>

namespace openreg {

namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

const at::Tensor &tensor(Arguments arguments, size_t index) {
  return arguments[index].toTensor();
}

// CUDA calls no library if the sums or the result are empty.
bool has_products(const at::Tensor &left, const at::Tensor &right) {
  return left.numel() > 0 && right.numel() > 0;
}

// The library for plain products, as torch.backends.cuda.preferred_blas_library() says.
BlasLibrary preferred() {
  return at::globalContext().blasPreferredBackend() == at::BlasBackend::Cublaslt
             ? BlasLibrary::kCublasLt
             : BlasLibrary::kCublas;
}

BlasLibrary always(Arguments) {
  return BlasLibrary::kCublas;
}

// mm, bmm: the factors are the first two arguments.
BlasLibrary of_first_two(Arguments arguments) {
  return has_products(tensor(arguments, 0), tensor(arguments, 1)) ? preferred()
                                                                  : BlasLibrary::kNone;
}

// addbmm, baddbmm: the factors follow the addend.
BlasLibrary of_next_two(Arguments arguments) {
  return has_products(tensor(arguments, 1), tensor(arguments, 2)) ? preferred()
                                                                  : BlasLibrary::kNone;
}

BlasLibrary of_matrix_and_vector(Arguments arguments) { // mv, which cuBLASLt does not support
  return tensor(arguments, 0).numel() > 0 ? BlasLibrary::kCublas : BlasLibrary::kNone;
}

BlasLibrary of_next_matrix_and_vector(Arguments arguments) { // addmv
  return tensor(arguments, 1).numel() > 0 ? BlasLibrary::kCublas : BlasLibrary::kNone;
}

bool is_real(c10::ScalarType dtype) {
  return dtype == at::kDouble || dtype == at::kFloat || dtype == at::kHalf ||
         dtype == at::kBFloat16;
}

// Whether the addend is a bias, one number per column, which cuBLASLt adds itself.
bool is_bias(const at::Tensor &added, int64_t columns) {
  const auto sizes = added.sizes();
  return !sizes.empty() && sizes.back() == columns && added.is_contiguous() &&
         (sizes.size() == 1 || (added.numel() == columns && columns > 1));
}

// addmm, _addmm_activation: self, mat1, mat2, beta, alpha, and the result in overloads with `out`.
BlasLibrary of_addmm(Arguments arguments, bool has_activation) {
  const auto &added = tensor(arguments, 0), &right = tensor(arguments, 2);
  if (!has_products(tensor(arguments, 1), right)) {
    return BlasLibrary::kNone;
  }
  const auto rows = right.size(0), columns = right.size(1);
  const auto &last = arguments.back();
  const bool is_fused = arguments[3].toScalar().toComplexDouble() == 1.0 && rows > 1 &&
                        columns > 1 && is_real(right.scalar_type()) &&
                        (!last.isTensor() || last.toTensor().is_contiguous()) &&
                        (is_bias(added, columns) || (has_activation && added.dim() == 2));
  return is_fused ? BlasLibrary::kCublasLt : preferred();
}

BlasLibrary of_plain_addmm(Arguments arguments) {
  return of_addmm(arguments, /*has_activation=*/false);
}

BlasLibrary of_activated_addmm(Arguments arguments) {
  return of_addmm(arguments, /*has_activation=*/true);
}

BlasLibrary of_scaled(Arguments arguments) { // _scaled_mm
  return has_products(tensor(arguments, 0), tensor(arguments, 1)) ? BlasLibrary::kCublasLt
                                                                  : BlasLibrary::kNone;
}

BlasLibrary of_triangular(Arguments arguments) { // a matrix and a right-hand side, in any order
  return has_products(tensor(arguments, 0), tensor(arguments, 1)) ? BlasLibrary::kCublas
                                                                  : BlasLibrary::kNone;
}

// _cdist_forward: x1, x2, p, compute_mode. Computes Euclidean distances of many points by a
// product.
BlasLibrary of_distances(Arguments arguments) {
  constexpr int64_t kDecideBySize = 0, kAlways = 1, kManyPoints = 25;
  const auto &left = tensor(arguments, 0), &right = tensor(arguments, 1);
  if (arguments[2].toDouble() != 2 || !has_products(left, right)) {
    return BlasLibrary::kNone;
  }
  const auto mode = arguments[3].isNone() ? kDecideBySize : arguments[3].toInt();
  const bool are_many = left.size(-2) > kManyPoints || right.size(-2) > kManyPoints;
  return mode == kAlways || (mode == kDecideBySize && are_many) ? preferred() : BlasLibrary::kNone;
}

BlasLibrary of_exponential(Arguments arguments) { // linalg_matrix_exp: products of matrices
  const auto &matrix = tensor(arguments, 0);
  return matrix.numel() > 0 && matrix.size(-1) > 1 ? preferred() : BlasLibrary::kNone;
}

// linalg_inv_ex, _linalg_solve_ex, linalg_lstsq: they solve with a triangular factor.
BlasLibrary of_matrix(Arguments arguments) {
  return tensor(arguments, 0).numel() > 0 ? BlasLibrary::kCublas : BlasLibrary::kNone;
}

// Sorted by name.
constexpr std::array<BlasOperator, 24> kTable = {{
    {"aten::_addmm_activation", &of_activated_addmm},
    {"aten::_cdist_forward", &of_distances},
    {"aten::_linalg_solve_ex", &of_matrix},
    {"aten::_native_multi_head_attention", &always},
    {"aten::_scaled_mm", &of_scaled},
    {"aten::_transformer_encoder_layer_fwd", &always},
    {"aten::addbmm", &of_next_two},
    {"aten::addbmm_", &of_next_two},
    {"aten::addmm", &of_plain_addmm},
    {"aten::addmm_", &of_plain_addmm},
    {"aten::addmv", &of_next_matrix_and_vector},
    {"aten::addmv_", &of_next_matrix_and_vector},
    {"aten::baddbmm", &of_next_two},
    {"aten::baddbmm_", &of_next_two},
    {"aten::bmm", &of_first_two},
    {"aten::dot", &always},
    {"aten::linalg_inv_ex", &of_matrix},
    {"aten::linalg_lstsq", &of_matrix},
    {"aten::linalg_matrix_exp", &of_exponential},
    {"aten::linalg_solve_triangular", &of_triangular},
    {"aten::mm", &of_first_two},
    {"aten::mv", &of_matrix_and_vector},
    {"aten::triangular_solve", &of_triangular},
    {"aten::vdot", &always},
}};

static_assert(std::ranges::is_sorted(kTable, {}, &BlasOperator::name));

} // namespace

std::span<const BlasOperator> blas_operators() {
  return kTable;
}

void append_blas_operators(std::vector<std::string_view> &names) {
  for (const auto &row : kTable) {
    names.push_back(row.name);
  }
}

} // namespace openreg
