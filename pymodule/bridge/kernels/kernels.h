// Kernels that replace PyTorch's for the CPU, where those return something else than CUDA's.
//
// The launch calls them (launch/by_dtype.h). Their tensors are on the host: twins of device
// tensors. They may allocate host memory, and run on the thread that runs the launch. What they
// return was compared with a GPU: test/fixtures, test/pymodule/operators/test_recorded_results.py.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

#include <string_view>

#include "core/dtypes.h"

namespace openreg {

struct ReplacedKernel {
  std::string_view name; // the operator, all overloads with a kernel, and its in-place form
  Dtypes dtypes;         // of the computation; others have PyTorch's kernel
  // Whether it replaces PyTorch's for these arguments. Null: for all.
  bool (*applies)(c10::ArrayRef<c10::IValue> arguments);
  // Replaces the arguments on top of the stack by the results.
  void (*run)(const c10::OperatorHandle &op, torch::jit::Stack *stack);
};

// Returns the kernel of an operator, or null.
const ReplacedKernel *find_replaced_kernel(std::string_view name);

// div with a rounding mode, floor_divide, remainder, fmod of integers: a division by zero has a
// result, and so has one of the smallest number by -1.
void divide_integers(const c10::OperatorHandle &op, torch::jit::Stack *stack);

// Whether copy_integers() replaces copy_ for these tensors.
bool converts_to_integers(const at::Tensor &self, const at::Tensor &source);

// copy_ of floats, or of the real parts of complex numbers, to integers: what the integers cannot
// represent becomes their nearest limit, or zero. Others are truncated. `source` can be expanded to
// the shape of `self`.
void copy_integers(const at::Tensor &self, const at::Tensor &source);

// Which of several equal elements an operator chooses, and in which order it returns them.
void sort_like_cuda(const c10::OperatorHandle &op, torch::jit::Stack *stack);
void topk_like_cuda(const c10::OperatorHandle &op, torch::jit::Stack *stack);
void kthvalue_like_cuda(const c10::OperatorHandle &op, torch::jit::Stack *stack);
void mode_like_cuda(const c10::OperatorHandle &op, torch::jit::Stack *stack);

// Calls PyTorch's kernel.
inline void call_pytorch(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

} // namespace openreg
