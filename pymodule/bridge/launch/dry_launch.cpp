// Launches in a dry run (tensor/known_values.h).
//
// A launch whose kernel may run goes on as always. Any other launch makes its results and takes the
// memory of its memory plan, and runs nothing. What the results are like, PyTorch's meta function
// of the operator says, once for each signature.
//
// If the values of unknown arguments decide the shapes of the results, or are the results, the
// kernel runs on zeros (invent_results).

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <string>
#include <utility>

#include "compat/operator_names.h"
#include "launch/boxed_operator.h"
#include "launch/hidden_operators.h"
#include "launch/meta_plan.h"
#include "launch/placeholder_inputs.h"
#include "streams/inline_guard.h"
#include "tensor/composite.h"
#include "tensor/known_values.h"

namespace openreg {

namespace {

// A kernel that reads so little runs without a look at the size of its results.
constexpr size_t kSmallBytes = 4096;

// An operator without a meta function may run on zeros if its tensors have at most so many bytes.
constexpr size_t kPlaceholderBytes = size_t{256} << 20;

// Counts of tokens for each expert: aten::histc and aten::bincount of `count` values.
at::Tensor even_counts(int64_t count, int64_t bins, at::ScalarType dtype) {
  auto counts = at::full({bins}, count / bins, at::device(at::kCPU).dtype(at::kLong));
  auto *numbers = counts.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < count % bins; ++i) {
    ++numbers[i];
  }
  return counts.to(dtype);
}

void mark_written_unknown(c10::ArrayRef<Substituted> substituted) {
  for (const auto &each : substituted) {
    if (each.written) {
      set_known(each.tensor, false);
    }
  }
}

std::string describe(const c10::IValue &value) {
  if (value.isTensor()) {
    return value.toTensor().defined() ? c10::str("a tensor of size ", value.toTensor().sizes())
                                      : "nothing";
  }
  return c10::str(value);
}

} // namespace

bool BoxedOperator::needs_values(const Call &call) const {
  return needs_values_ || has_mask_index(call) ||
         (dry_run().routes_evenly && !bins_argument(name_).empty());
}

// Returns false if the kernel runs.
bool BoxedOperator::launch_dry(Call &call) {
  const auto is_composite_argument = [](const auto &each) { return is_composite(each.tensor); };
  if (is_view_ || is_copy_ || !is_dense_ ||
      std::ranges::any_of(call.substituted, is_composite_argument)) {
    return false;
  }
  KernelAccesses accesses;
  for (const auto &each : call.substituted) {
    if (each.written && overwrites_) {
      accesses.overwrite(each.tensor);
    } else {
      accesses.read(each.tensor);
    }
  }
  if (needs_values(call)) {
    if (accesses.have_unknown()) {
      invent_results(call);
    }
    return accesses.have_unknown();
  }
  if (accesses.have_unknown() || accesses.bytes() > kSmallBytes) {
    const auto plan = plan_dry(call);
    if (accesses.are_skipped(plan->result_bytes())) {
      make_results(call, *plan);
      return true;
    }
  }
  for (const auto &each : call.substituted) {
    if (each.written && overwrites_) {
      note_overwritten(each.tensor);
    }
  }
  return false;
}

// Replaces the arguments by unknown results, and takes and frees memory as the plan says.
void BoxedOperator::make_results(Call &call, const OutputPlan &plan) const {
  call.source = plan.source;
  count(call);
  auto blocks = plan.allocate(call.device);
  auto next = blocks.begin();
  const auto make = [&](const PlannedTensor &planned) {
    switch (planned.kind) {
    case PlannedTensor::Kind::kUndefined:
      return at::Tensor();
    case PlannedTensor::Kind::kArgument:
      return call.substituted[planned.argument].tensor;
    case PlannedTensor::Kind::kEmpty:
      return make_planned(planned, allocate_block(call.device, 0));
    default:
      auto made = make_planned(planned, (next++)->release());
      set_known(made, false);
      return made;
    }
  };
  torch::jit::drop(*call.stack, written_.size());
  push_results(*call.stack, plan, make);
  mark_written_unknown(call.substituted);
}

// Returns the plan of a launch that may not run. It is kept apart from plans of launches that ran.
std::shared_ptr<OutputPlan> BoxedOperator::plan_dry(Call &call) {
  OutputPlans::Key key;
  const bool is_learned = make_key(call, key);
  if (is_learned) {
    key.push_back('d');
    if (auto plan = plans_.find(key)) {
      return plan;
    }
  }
  auto plan = plan_from_meta(op_, *call.stack, call.substituted);
  const auto memory =
      has_planner() ? plan_memory(op_, device_arguments(call)) : std::optional<MemoryPlan>();
  const bool shares_code = traits_.memory == KernelMemory::kAsOnCuda && !is_foreign(name_);
  if (plan == nullptr || (!memory.has_value() && shares_code)) {
    size_t bytes = 0;
    for (const auto &each : call.substituted) {
      bytes += each.tensor.nbytes();
    }
    const bool is_small = bytes <= kPlaceholderBytes;
    TORCH_CHECK_NOT_IMPLEMENTED(
        is_small || plan != nullptr, "openreg: a dry run cannot tell what '", name_,
        "' returns: it has no meta function. Register one with torch.library.register_fake.");
    if (is_small) { // what the kernel takes is what CUDA's takes if they share code
      try {
        plan = plan_from_placeholders(call);
        if (!shares_code) {
          plan->events.clear();
        }
      } catch (const c10::Error &error) { // which says nothing about the program's values
        TORCH_CHECK_NOT_IMPLEMENTED(
            plan != nullptr, "openreg: a dry run cannot tell what '", name_,
            "' returns: it has no meta function, and its kernel refuses zeros (",
            error.what_without_backtrace(),
            "). Register a meta function with torch.library.register_fake.");
      }
    }
  }
  if (refresh_twins(call)) { // planning resized an argument, so the key is another
    return plan_dry(call);
  }
  if (memory.has_value()) {
    add_memory_plan(*memory, *plan, /*may_be_larger=*/true);
  }
  if (is_learned) {
    plans_.learn(std::move(key), plan);
  }
  return plan;
}

// Replaces the arguments by what the kernel returns for zeros, and records that.
void BoxedOperator::invent_results(Call &call) {
  PlaceholderInputs placeholders(0);
  SubstitutedList substituted;
  for (const auto &each : call.substituted) {
    substituted.push_back({each.tensor, placeholders.of(each.twin), each.written});
  }
  torch::jit::Stack stack;
  for (const auto &value : torch::jit::last(*call.stack, written_.size())) {
    stack.push_back(placeholders.in(value));
  }
  const auto bins = op_.schema().argumentIndexWithName(std::string(bins_argument(name_)));
  if (bins.has_value() && dry_run().routes_evenly && call.substituted.size() == 1) {
    const auto values = stack.front().toTensor();
    const auto dtype = needs_values_ ? at::kLong : values.scalar_type();
    stack = {even_counts(values.numel(),
                         std::max<int64_t>(stack[static_cast<size_t>(*bins)].toInt(), 1), dtype)};
  } else {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const AllocatorOverride to_host;
    const HiddenOperators hidden;
    kernel_.run(&stack);
  }
  resize_written(substituted);
  mark_written_unknown(substituted);
  record_unknown_read(name_.c_str(), stack.empty() ? "nothing" : describe(stack.front()));
  torch::jit::drop(*call.stack, written_.size());
  call.stack->insert(call.stack->end(), stack.begin(), stack.end());
  stack.clear();
  const InlineGuard guard(call.device);
  return_results(call.stack, op_.schema().returns().size(), host_result_, substituted, call.device);
}

} // namespace openreg
