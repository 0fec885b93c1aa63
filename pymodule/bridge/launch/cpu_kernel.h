// The CPU kernel that a launch runs.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>

#include "launch/argument_devices.h"
#include "launch/by_dtype.h"

namespace openreg {

// Calls PyTorch's kernel of an operator for `kernel_key`. Replaces the arguments by the results.
inline void call_kernel(const c10::OperatorHandle &op, c10::DispatchKey kernel_key,
                        torch::jit::Stack *stack) {
  if (kernel_key == c10::DispatchKey::CPU) {
    op.redispatchBoxed(kCpuKernel, stack);
  } else {
    op.callBoxed(stack); // the keys of the arguments select the kernel for their layouts
  }
}

// PyTorch's kernel, with copies of the arguments in another dtype where the tables ask for them.
class CpuKernel {
public:
  CpuKernel(const c10::OperatorHandle &op, c10::DispatchKey kernel_key)
      : op_(op), kernel_key_(kernel_key),
        by_dtype_(ByDtype::is_needed(op.operator_name(), kernel_key)
                      ? std::make_shared<const ByDtype>(op, kernel_key)
                      : nullptr) {}

  const c10::OperatorHandle &op() const { return op_; }

  // Raises CUDA's error for a dtype that its kernel refuses. Returns whether run() copies the
  // arguments.
  bool check(Arguments arguments) const {
    return by_dtype_ != nullptr && by_dtype_->check(arguments);
  }

  // Replaces the arguments on top of the stack, which are on the host, by the results. The caller
  // has excluded autograd.
  void run(torch::jit::Stack *stack) const {
    if (by_dtype_ != nullptr) {
      by_dtype_->run(stack);
    } else {
      call_kernel(op_, kernel_key_, stack);
    }
  }

private:
  c10::OperatorHandle op_;
  c10::DispatchKey kernel_key_;
  std::shared_ptr<const ByDtype> by_dtype_; // null: the operator has no rows
};

} // namespace openreg
