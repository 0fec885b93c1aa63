// The names of the wrapper functions that PyTorch generates around CUDA's kernels. Its error
// messages quote them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <string_view>
#include <vector>

namespace openreg {

struct Quoted {
  std::string method; // without "wrapper_CUDA_"
  std::string argument;
};

// Returns the names of an operator and one of its arguments in CUDA's device check. Slow: use it
// only for error messages.
Quoted quoted_by_cuda(const c10::OperatorHandle &op, std::string_view argument);

// Appends the operators that are composite on CUDA. A test checks that PyTorch has them.
void append_operators_with_other_wrappers(std::vector<std::string_view> &names);

} // namespace openreg
