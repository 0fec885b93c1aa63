// Operators whose CUDA kernels call cuBLAS or cuBLASLt with a workspace, and with which arguments
// they do. A test checks that PyTorch still has every operator in the table.
//
// Factorizations and solvers are not listed: whether cuBLAS or cuSOLVER computes them depends on
// sizes and versions.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <span>
#include <string_view>
#include <vector>

namespace openreg {

enum class BlasLibrary { kNone, kCublas, kCublasLt };

struct BlasOperator {
  std::string_view name; // all overloads

  // Returns the library that computes these arguments. Call it after the kernel has accepted them.
  BlasLibrary (*library)(c10::ArrayRef<c10::IValue> arguments);
};

std::span<const BlasOperator> blas_operators();

// Appends the name of each.
void append_blas_operators(std::vector<std::string_view> &names);

} // namespace openreg
