// Launches of fused Adam and AdamW with parameters in float32 and a state in bfloat16, which CUDA's
// kernels support and the CPU's do not.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace openreg {

class WiderState final : public c10::OperatorKernel {
public:
  // `launch` computes with a state in the dtype of the parameters.
  WiderState(const c10::OperatorHandle &op, c10::KernelFunction launch);

  // Computes with copies of the state in float32 and rounds them once, as CUDA's kernels do.
  void operator()(const c10::OperatorHandle &op, c10::DispatchKeySet keys,
                  torch::jit::Stack *stack);

  static bool is_needed(const c10::OperatorName &name);

private:
  c10::KernelFunction launch_;
  size_t argument_count_;
};

} // namespace openreg
