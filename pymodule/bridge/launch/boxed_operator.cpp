#include "launch/boxed_operator.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "compat/kernel_names.h"
#include "compat/operator_names.h"
#include "core/unsupported.h"
#include "launch/hidden_operators.h"
#include "tensor/known_values.h"

namespace openreg {

using c10::OperatorHandle;

// ---- what the schema says -----------------------------------------------------------------------

namespace {

bool is_view(const OperatorHandle &op) {
  const auto is_alias = [](const c10::Argument &each) { return each.alias_info() != nullptr; };
  return std::ranges::any_of(op.schema().returns(), is_alias) && !op.schema().is_mutable();
}

size_t count_fresh_results(const OperatorHandle &op) {
  return static_cast<size_t>(
      std::ranges::count_if(op.schema().returns(), [](const c10::Argument &result) {
        return result.alias_info() == nullptr || !result.alias_info()->isWrite();
      }));
}

} // namespace

const std::string &public_name(const OperatorHandle &op) {
  constexpr std::string_view kHost = "openreg_host::";
  const auto &name = op.schema().name();
  if (name.starts_with(kHost)) {
    const auto of_pytorch = c10::Dispatcher::singleton().findSchema(
        {"aten::" + name.substr(kHost.size()), op.schema().overload_name()});
    TORCH_INTERNAL_ASSERT(of_pytorch.has_value(), name);
    return of_pytorch->schema().name();
  }
  return name;
}

namespace {

// Whether an operator does not read the arguments that it writes to.
bool overwrites(const OperatorHandle &op) {
  const auto &arguments = op.schema().arguments();
  return overwrites_first_argument(op.schema().name()) ||
         std::ranges::none_of(arguments, [](const c10::Argument &each) {
           return each.alias_info() != nullptr && each.alias_info()->isWrite() && !each.is_out();
         });
}

// Whether an operator makes a sparse tensor of a dense one, with as many elements as are not zero.
bool makes_sparse(std::string_view name) {
  return name.starts_with("aten::_to_sparse");
}

bool returns_values(const OperatorHandle &op) {
  return std::ranges::any_of(op.schema().returns(), [](const c10::Argument &result) {
    return result.type()->kind() != c10::TypeKind::TensorType &&
           !result.type()->isSubtypeOf(*c10::ListType::ofTensors());
  });
}

// The name in errors of the backend whose kernels those of `key` compute: "SparseCUDA" for
// "SparseCPU".
std::string backend_name(c10::DispatchKey key) {
  std::string name = c10::toString(key);
  return name.replace(name.find("CPU"), 3, platform_name());
}

} // namespace

bool returns_object(const OperatorHandle &op) {
  return std::ranges::any_of(op.schema().returns(), [](const c10::Argument &result) {
    return result.type()->kind() == c10::TypeKind::ClassType;
  });
}

bool uses_rng(const OperatorHandle &op) {
  return op.hasTag(at::Tag::nondeterministic_seeded) && !has_stale_rng_tag(op.schema().name());
}

BoxedOperator::BoxedOperator(const OperatorHandle &op, c10::DispatchKey kernel_key, Rng rng)
    : op_(op), name_(public_name(op)), overload_(op.schema().overload_name()),
      is_blocked_(is_blocked(op.operator_name())),
      refuses_rng_(rng == Rng::kRefused && uses_rng(op)),
      has_kernel_(op.hasComputedKernelForDispatchKey(kernel_key)),
      returns_object_(returns_object(op)), fresh_results_(count_fresh_results(op)),
      traits_(kernel_traits(op)), kernel_(op, kernel_key), kernel_key_(kernel_key),
      is_dense_(kernel_key == c10::DispatchKey::CPU), is_foreign_(is_foreign(name_)),
      is_copy_(!is_dense_ && copies_composites(name_)), is_view_(is_view(op)),
      is_indexing_(has_data_dependent_size(name_)), overwrites_(overwrites(op)),
      needs_values_(false), can_queue_(false), host_result_(host_result(name_)) {
  needs_values_ = host_result_ >= 0 || returns_values(op) || makes_sparse(name_) ||
                  (!is_indexing_ && depends_on_values(op));
  can_queue_ = is_dense_ && !is_copy_ && !is_view_ && host_result_ < 0 && can_be_queued(op);
  for (const auto &argument : op.schema().arguments()) {
    const auto *alias = argument.alias_info();
    written_.push_back(alias != nullptr && alias->isWrite());
    by_value_.push_back(size_depends_on_numbers(name_) || OutputPlans::matters_by_value(argument));
  }
}

void BoxedOperator::check_supported() const {
  if (is_blocked_) {
    refuse_operator(op_.operator_name());
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      !refuses_rng_, "openreg: '", name_,
      "' draws random numbers and openreg has no kernel for it. openreg does not use the host's "
      "generator instead. Compute it on the CPU and copy the result to the device.");
  TORCH_CHECK_NOT_IMPLEMENTED(
      has_kernel_, "Could not run '", name_, (overload_.empty() ? "" : "."), overload_,
      "' with arguments from the '", backend_name(kernel_key_),
      "' backend: openreg has no kernel for it, and there is no CPU kernel to run.");
  TORCH_CHECK_NOT_IMPLEMENTED(
      !returns_object_, "openreg: '", name_,
      "' is not supported: it returns an object that could keep device memory alive. Call it on "
      "CPU tensors.");
}

// ---- arguments ----------------------------------------------------------------------------------

// Checks an argument's device, and returns what the kernel gets.
template <class Devices>
at::Tensor BoxedOperator::substitute_argument(Devices &devices, const at::Tensor &tensor,
                                              bool written, SubstitutedList &substituted) const {
  if (!is_copy_) { // a copy has a device on each side
    devices.check(tensor);
    if (written) {
      devices.check_written(tensor);
    }
  }
  auto twin = substitute(tensor, written, substituted);
  if (!is_dense_ && tensor.requires_grad() && !twin.is_same(tensor)) {
    // Some sparse kernels look at requires_grad to know what a backward will need.
    twin = twin.detach();
    twin.set_requires_grad(true);
    substituted.back().twin = twin;
  }
  return twin;
}

// A kernel that does more than the CPU's takes memory of its own.
KernelTraits BoxedOperator::traits_of(const Call &call) const {
  auto traits = traits_;
  if (call.differs_by_dtype) {
    traits.memory = KernelMemory::kUnknown;
  }
  return traits;
}

// Puts twins in the place of device tensors and "cpu" in the place of a device argument. Sets where
// the kernel allocates.
void BoxedOperator::substitute_arguments(Call &call) const {
  const auto arguments = call.stack->end() - static_cast<std::ptrdiff_t>(written_.size());
  ArgumentDevices devices(name_.c_str(), overload_.c_str());
  int named_device = -1;
  bool names_host = false;
  for (size_t i = 0; i < written_.size(); ++i) {
    auto &value = arguments[static_cast<std::ptrdiff_t>(i)];
    const bool written = written_[i];
    if (value.isTensor()) {
      value = substitute_argument(devices, value.toTensor(), written, call.substituted);
    } else if (value.isTensorList()) {
      ArgumentDevices::List list(devices);
      c10::List<at::Tensor> twins;
      for (const auto &tensor : value.toTensorVector()) {
        twins.push_back(substitute_argument(list, tensor, written, call.substituted));
      }
      value = std::move(twins);
    } else if (value.isOptionalTensorList()) {
      ArgumentDevices::List list(devices);
      c10::List<std::optional<at::Tensor>> twins;
      for (const auto &tensor : value.toOptionalTensorVector()) {
        twins.push_back(tensor.has_value() ? std::optional(substitute_argument(
                                                 list, *tensor, written, call.substituted))
                                           : std::nullopt);
      }
      value = std::move(twins);
    } else if (value.isScalar()) {
      devices.check_scalar(value.isComplexDouble());
    } else {
      devices.skip();
    }
    if (value.isDevice() && value.toDevice().is_cpu()) {
      names_host = true;
    } else if (value.isDevice() && value.toDevice().type() == kDeviceType) {
      named_device =
          value.toDevice().has_index() ? value.toDevice().index() : openreg_device_current();
      value = c10::Device(c10::DeviceType::CPU);
    }
  }
  if (is_copy_) {
    const auto &to = call.substituted.front();
    call.device = to.written ? to.tensor.device().index() : static_cast<c10::DeviceIndex>(-1);
    call.placement = Placement::all();
    return;
  }
  call.device = named_device >= 0 ? static_cast<c10::DeviceIndex>(named_device) : devices.index();
  if (names_host && !is_dense_ && !call.substituted.empty()) {
    call.device = -1; // such as empty_like of a sparse tensor, with device="cpu"
    call.placement = Placement::all();
    return;
  }
  if (is_view_) { // it does not wait for the stream, so it must not write to the device's memory
    call.placement = Placement(); // such as the tables of a nested tensor
    return;
  }
  call.placement = is_dense_ ? devices.placement(traits_of(call), fresh_results_)
                             : std::optional(Placement::all());
  if (!can_queue_ && !call.placement.has_value()) { // such an operator has no plans
    call.placement = Placement();
  } else if (can_queue_ && has_planner()) {
    call.placement.reset();
  }
}

BoxedOperator::Call BoxedOperator::begin_call(torch::jit::Stack *stack) const {
  check_supported();
  Call call{.stack = stack};
  call.differs_by_dtype = kernel_.check(torch::jit::last(*stack, written_.size()));
  substitute_arguments(call);
  call.elements = count_elements(call.substituted);
  return call;
}

// ---- launches -----------------------------------------------------------------------------------

void BoxedOperator::run(torch::jit::Stack *stack) {
  auto call = begin_call(stack);
  if (!can_queue_ || !is_long(call.elements)) {
    launch(call, /*wants_queue=*/false);
    return;
  }
  LongLaunch long_launch(cost_, call.elements, call.device);
  launch(call, long_launch.is_queued());
}

void BoxedOperator::queue(torch::jit::Stack *stack) {
  auto call = begin_call(stack);
  launch(call, /*wants_queue=*/true);
}

void BoxedOperator::launch(Call &call, bool wants_queue) {
  if (is_dry() && launch_dry(call)) [[unlikely]] {
    return;
  }
  if (openreg_captures_exist() && !is_view_ && is_capturing(call.device)) [[unlikely]] {
    capture(call);
    count(call);
    return;
  }
  const bool may_be_queued = can_queue_ && may_queue() && (wants_queue || !is_idle(call.device));
  OutputPlans::Key key;
  std::shared_ptr<OutputPlan> plan;
  if ((may_be_queued || !call.placement.has_value()) && make_key(call, key)) {
    plan = find_plan(call, key);
    if (may_be_queued && try_queue(call, plan)) {
      count(call);
      return;
    }
    if (plan == nullptr && has_planner()) {
      call.memory = plan_memory(op_, device_arguments(call));
    }
  }
  run_inline(call, std::move(key), plan);
  count(call);
}

// Counts a launch by the source of its memory plan.
void BoxedOperator::count(const Call &call) const {
  if (!has_planner() || is_view_ || call.device < 0) {
    return;
  }
  const bool needs_none = call.source == PlanSource::kNone && traits_.converts_arguments;
  count_launch(call.device, needs_none ? PlanSource::kElementwise : call.source);
}

// Returns false without a plan that allows it.
bool BoxedOperator::try_queue(Call &call, const std::shared_ptr<OutputPlan> &plan) {
  if (plan == nullptr || !plan->can_be_queued) {
    return false;
  }
  call.source = plan->source;
  queue_launch(kernel_, call.stack, written_.size(), plan, call.substituted, cost_, call.elements,
               call.device);
  return true;
}

// Adds the launch to the graph that the stream captures. The kernel does not run now, so its
// results must be known beforehand.
void BoxedOperator::capture(Call &call) {
  OutputPlans::Key key;
  if (!can_queue_ || !make_key(call, key)) {
    raise_in_capture(call.device, name_ + " has results whose shapes depend on data");
  }
  auto plan = find_plan(call, key);
  if (plan == nullptr) {
    plan = plan_from_placeholders(call);
    if (refresh_twins(call)) { // planning resized an argument, so the key is another
      capture(call);
      return;
    }
    if (has_planner() && plan->can_be_queued) {
      if (const auto memory = plan_memory(op_, device_arguments(call)); memory.has_value()) {
        add_memory_plan(*memory, *plan);
      }
    }
    plans_.learn(std::move(key), plan);
  }
  if (!try_queue(call, plan)) {
    raise_in_capture(call.device, name_ + " has results that cannot be predicted");
  }
}

// Runs the kernel on this thread. An empty `key` means that nothing can be learned from the run.
// `plan` is null if there is none.
void BoxedOperator::run_inline(Call &call, OutputPlans::Key key,
                               const std::shared_ptr<OutputPlan> &plan) {
  if (!call.placement.has_value()) {
    call.placement = plan != nullptr ? plan->results : Placement();
  }
  std::optional<ThreadCount> threads;
  if (can_queue_) { // as many as on a worker
    threads.emplace(threads_inline(call.elements));
  }
  std::optional<InlineGuard> guard;
  if (!is_view_) {
    guard.emplace(call.device >= 0 ? call.device
                                   : call.substituted.front().tensor.device().index());
  }
  std::optional<PreparedBlocks> blocks;
  const bool is_planned = plan != nullptr && plan->can_be_queued;
  if (is_planned) {
    call.source = plan->source;
  }
  if (is_planned && !plan->events.empty()) {
    if (run_planned(kernel_, call.stack, written_.size(), plan, call.substituted, cost_,
                    call.elements, call.device)) {
      return;
    }
  } else if (key.empty() || (plan != nullptr && !is_long(call.elements))) {
    run_kernel(call, nullptr);
  } else {
    run_and_learn(call, std::move(key), plan != nullptr, blocks);
  }
  write_back_all(call.substituted, call.device);
  if (call.device < 0 && !is_copy_) {
    return; // the results stay on the host
  }
  return_results(call.stack, op_.schema().returns().size(), host_result_, call.substituted,
                 call.device);
}

void BoxedOperator::run_kernel(const Call &call, Allocations *allocations) const {
  try {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto placement = call.device >= 0 ? *call.placement : Placement();
    const AllocatorOverride on_device(call.device, placement, allocations);
    const HiddenOperators hidden(!is_foreign_);
    kernel_.run(call.stack);
  } catch (...) {
    write_back_all(call.substituted, call.device); // a kernel may resize before it fails
    rethrow_with_cuda_names();
  }
}

} // namespace openreg
