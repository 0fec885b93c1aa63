// Output plans from meta functions: what an operator returns for arguments of some shapes, without
// data. Dry runs use them (dry_launch.cpp).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

#include <memory>

#include "launch/output_plan.h"
#include "launch/substitution.h"

namespace openreg {

// Runs the meta function of `op` on tensors like the call's arguments, which are on top of the
// stack with twins substituted. `substituted` says which twins stand for which device tensors.
// Resizes arguments that the operator resizes. Returns null if the operator has no meta function,
// or if it returns something that a plan cannot describe. Raises the error that the meta function
// raises.
//
// The plan has no events and does not say which allocations of the CPU kernel become results.
std::shared_ptr<OutputPlan> plan_from_meta(const c10::OperatorHandle &op,
                                           const torch::jit::Stack &stack,
                                           c10::ArrayRef<Substituted> substituted);

// Pushes what the plan returns. `make` makes each tensor from its PlannedTensor.
template <class Make>
void push_results(torch::jit::Stack &stack, const OutputPlan &plan, const Make &make) {
  for (const auto &planned : plan.returns) {
    c10::List<at::Tensor> tensors;
    for (const auto &each : planned.tensors) {
      tensors.push_back(make(each));
    }
    stack.push_back(planned.is_list ? c10::IValue(tensors) : c10::IValue(tensors.get(0)));
  }
}

} // namespace openreg
