// Operators that have no deterministic implementation on CUDA. Under
// torch.use_deterministic_algorithms they raise here what they raise there, or warn of it, although
// the CPU's kernels that run are deterministic: a program that fails on a GPU fails here.
//
// Not so are the backwards of replication_pad and of max_pool3d. For CUDA tensors PyTorch puts
// deterministic compositions in their place, for openreg's it does not, so that a program that runs
// on a GPU would fail here. Nor is asked for CUBLAS_WORKSPACE_CONFIG, which a device without cuBLAS
// does not need.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/operator_name.h>
#include <c10/util/ArrayRef.h>

#include <string_view>
#include <vector>

namespace openreg {

struct Nondeterministic {
  std::string_view name, overload; // overload "*": all of them
  const char *cuda_name;           // by which CUDA's sentence calls it
  bool (*applies)(c10::ArrayRef<c10::IValue> arguments) = nullptr; // nullptr: with any arguments

  // Raises or warns, as torch.use_deterministic_algorithms says, if it applies to such arguments.
  void alert(c10::ArrayRef<c10::IValue> arguments) const;
};

// The operator's row of the table, nullptr for most operators.
const Nondeterministic *find_nondeterministic(const c10::OperatorName &name);

// The name of each row.
void append_nondeterministic(std::vector<std::string_view> &names);

} // namespace openreg
