// The functions around CUDA's kernels that PyTorch generates, whose names its sentences quote.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <string_view>
#include <vector>

namespace openreg {

struct Quoted {
  std::string method; // behind "wrapper_CUDA_"
  std::string argument;
};

// How the check of an operator's devices names it and one of its arguments. Slow: for sentences.
Quoted quoted_by_cuda(const c10::OperatorHandle &op, std::string_view argument);

// Adds the operators that have no function of their own there, for who asks whether PyTorch has
// them.
void append_operators_with_other_wrappers(std::vector<std::string_view> &names);

} // namespace openreg
