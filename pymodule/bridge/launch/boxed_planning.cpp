// How a boxed operator gets its output plans: from launches that run inline, or from a dry run on
// placeholder inputs during a capture.

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <utility>

#include "launch/boxed_operator.h"
#include "launch/hidden_operators.h"
#include "launch/map_tensors.h"
#include "launch/placeholder_inputs.h"
#include "tensor/composite.h"

namespace openreg {

namespace {

// Passes warnings on and remembers whether there were any. A warning on a worker would be lost, so
// such a launch must not be queued.
class WarningRecorder final : public c10::WarningHandler {
public:
  void process(const c10::Warning &warning) override {
    any_ = true;
    next_->process(warning);
  }
  bool any() const { return any_; }

private:
  c10::WarningHandler *next_ = c10::WarningUtils::get_warning_handler();
  bool any_ = false;
};

bool is_mask(const at::Tensor &index) {
  return index.defined() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
}

// With a mask among the indices, the result's size depends on the mask's content.
bool has_mask(const c10::IValue &indices) {
  return std::ranges::any_of(indices.toListRef(), [](const c10::IValue &index) {
    return index.isTensor() && is_mask(index.toTensor());
  });
}

} // namespace

bool BoxedOperator::has_mask_index(const Call &call) const {
  return is_indexing_ && has_mask(torch::jit::peek(*call.stack, 1, written_.size()));
}

// Makes the key under which a plan is stored. Returns false, with an empty key, if nothing can be
// learned from such a launch.
bool BoxedOperator::make_key(const Call &call, OutputPlans::Key &key) const {
  const auto is_composite_argument = [](const auto &each) { return is_composite(each.tensor); };
  if (has_mask_index(call) || std::ranges::any_of(call.substituted, is_composite_argument) ||
      !OutputPlans::make_key(*call.stack, by_value_, key)) {
    key.clear();
    return false;
  }
  if (has_planner()) { // devices may be of different kinds
    key.push_back(static_cast<char>(call.device));
  }
  return true;
}

// Returns the plan of a launch, or null. If the kernel would resize arguments, resizes them now and
// changes `key`.
std::shared_ptr<OutputPlan> BoxedOperator::find_plan(Call &call, OutputPlans::Key &key) {
  auto plan = plans_.find(key);
  if (plan == nullptr || plan->resizes.empty() || !can_queue_) {
    return plan;
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (const auto &[argument, sizes, strides] : plan->resizes) {
    const auto &tensor = call.substituted[argument].tensor;
    tensor.resize_(sizes);
    if (tensor.strides() != at::IntArrayRef(strides)) {
      tensor.as_strided_(sizes, strides);
    }
  }
  refresh_twins(call);
  call.elements = count_elements(call.substituted);
  return make_key(call, key) ? plans_.find(key) : nullptr;
}

// Prepares `blocks` for the results if the launch has a memory plan.
void BoxedOperator::run_and_learn(Call &call, OutputPlans::Key key, bool has_plan,
                                  std::optional<PreparedBlocks> &blocks) {
  const auto began_ns = now_ns();
  if (has_plan) {
    run_kernel(call, nullptr);
    cost_.note(call.elements, now_ns() - began_ns);
    return;
  }
  Allocations allocations;
  WarningRecorder warnings;
  {
    const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
    run_kernel(call, &allocations);
  }
  cost_.note(call.elements, now_ns() - began_ns);
  auto plan = make_output_plan(*call.stack, op_.schema().returns().size(), call.substituted,
                               allocations, traits_of(call).memory);
  if (warnings.any()) {
    plan->can_be_queued = false;
  }
  if (call.memory.has_value() && plan->can_be_queued) {
    add_memory_plan(*call.memory, *plan);
    blocks.emplace(plan->allocate(call.device));
    call.source = plan->source;
  }
  plans_.learn(std::move(key), std::move(plan));
}

// Returns the arguments of a call as the program gave them.
torch::jit::Stack BoxedOperator::device_arguments(const Call &call) const {
  const auto original = [&](const at::Tensor &twin) {
    const auto found = std::ranges::find_if(
        call.substituted, [&](const Substituted &each) { return each.twin.is_same(twin); });
    return found == call.substituted.end() ? twin : found->tensor;
  };
  torch::jit::Stack arguments;
  for (auto value = call.stack->end() - static_cast<std::ptrdiff_t>(written_.size());
       value != call.stack->end(); ++value) {
    arguments.push_back(map_tensors(*value, original));
  }
  return arguments;
}

// Runs the kernel on placeholders for the arguments. Zeros come first because they are valid
// indices; if the kernel refuses them, ones follow.
std::shared_ptr<OutputPlan> BoxedOperator::plan_from_placeholders(const Call &call) const {
  const auto plan_with = [&](int number) {
    PlaceholderInputs placeholders(number);
    SubstitutedList substituted;
    for (const auto &each : call.substituted) {
      substituted.push_back({each.tensor, placeholders.of(each.twin), each.written});
    }
    torch::jit::Stack stack;
    for (auto value = call.stack->end() - static_cast<std::ptrdiff_t>(written_.size());
         value != call.stack->end(); ++value) {
      stack.push_back(placeholders.in(*value));
    }
    Allocations allocations;
    {
      const AllocatorOverride to_host(&allocations);
      const HiddenOperators hidden;
      kernel_.run(&stack);
    }
    resize_written(substituted); // now, so that no replay has to
    return make_output_plan(stack, op_.schema().returns().size(), substituted, allocations,
                            traits_of(call).memory);
  };
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  try {
    return plan_with(0);
  } catch (const c10::Error &) {
    return plan_with(1);
  }
}

// A resized tensor has a new twin. Substitutes the new twins and returns whether there are any.
bool BoxedOperator::refresh_twins(Call &call) const {
  bool any = false;
  for (auto &each : call.substituted) {
    const auto &twin = twin_of(each.tensor);
    if (each.twin.is_same(twin)) {
      continue;
    }
    for (auto value = call.stack->end() - static_cast<std::ptrdiff_t>(written_.size());
         value != call.stack->end(); ++value) {
      if (value->isTensor() && value->toTensor().is_same(each.twin)) {
        *value = twin;
      }
    }
    each.twin = twin;
    any = true;
  }
  return any;
}

} // namespace openreg
