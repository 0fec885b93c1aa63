// Operators for which CUDA's kernels call cuBLAS or cuBLASLt with a workspace, and for which
// arguments. A test asks whether PyTorch still has every operator that is named here.
//
// Not so are factorizations and the solvers made of them: whether cuBLAS or cuSOLVER serves them
// depends on sizes and versions.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <span>
#include <string_view>
#include <vector>

namespace openreg {

enum class BlasLibrary { kNone, kCublas, kCublasLt };

struct BlasOperator {
  std::string_view name; // all its overloads

  // Which library works with such arguments, which the kernel has accepted.
  BlasLibrary (*library)(c10::ArrayRef<c10::IValue> arguments);
};

std::span<const BlasOperator> blas_operators();

// The name of each.
void append_blas_operators(std::vector<std::string_view> &names);

} // namespace openreg
