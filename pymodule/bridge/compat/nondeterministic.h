// Operators without a deterministic implementation on CUDA. Under
// torch.use_deterministic_algorithms they raise or warn as they do on CUDA, although the CPU's
// kernels are deterministic: a program that fails on a GPU must fail here.
//
// The backward operators of replication_pad and max_pool3d are exceptions. PyTorch replaces them by
// deterministic compositions for CUDA tensors only, so raising for openreg's tensors would fail a
// program that runs on a GPU. CUBLAS_WORKSPACE_CONFIG is not required either, because the devices
// have no cuBLAS.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/operator_name.h>
#include <c10/util/ArrayRef.h>

#include <string_view>
#include <vector>

namespace openreg {

struct Nondeterministic {
  std::string_view name, overload;                                 // overload "*": all overloads
  const char *cuda_name;                                           // the name in CUDA's error
  bool (*applies)(c10::ArrayRef<c10::IValue> arguments) = nullptr; // nullptr: for all arguments

  // Raises or warns, as torch.use_deterministic_algorithms says, if the row applies to the
  // arguments.
  void alert(c10::ArrayRef<c10::IValue> arguments) const;
};

// Returns the operator's row, or nullptr. Most operators have none.
const Nondeterministic *find_nondeterministic(const c10::OperatorName &name);

// Appends the name of each row.
void append_nondeterministic(std::vector<std::string_view> &names);

} // namespace openreg
