// How each operator is implemented: what torch.openreg.operators() shows.
#pragma once

#include <ATen/core/operator_name.h>

#include <map>
#include <string>

namespace openreg {

enum class KernelKind { kTyped, kBoxed };

// Records which kind of kernel an operator has. Called where the kernel is registered.
void record_kernel_kind(const c10::OperatorName &name, KernelKind door);

// Maps every registered operator, such as "aten::add.Tensor", to one of
//   "native"     a kernel of openreg's own
//   "typed"      PyTorch's CPU kernel, launched by code compiled for this operator
//   "boxed"      PyTorch's CPU kernel, launched by its schema
//   "composite"  implemented by other operators
//   "refused"    not supported on this device; raises NotImplementedError
std::map<std::string, std::string> registered_operators();

} // namespace openreg
