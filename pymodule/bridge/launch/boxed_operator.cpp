#include "launch/boxed_operator.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/enum_tag.h>

#include <algorithm>

#include "compat/operator_names.h"
#include "launch/placeholder_inputs.h"
#include "tensor/composite.h"
#include "core/unsupported.h"

namespace openreg {

using c10::IValue;
using c10::OperatorHandle;

namespace {

bool is_on_device(const at::Tensor &tensor) {
  return tensor.defined() && tensor.device().type() == kDeviceType;
}

at::Tensor return_result(at::Tensor &&result, c10::ArrayRef<Exchanged> exchanged,
                         c10::DeviceIndex device) {
  if (result.defined() && is_fresh(result) && !is_composite(result)) {
    return hand_over(std::move(result), last_launch);
  }
  c10::SmallVector<const at::Tensor *, 4> arguments;
  for (const auto &each : exchanged) {
    if (result.unsafeGetTensorImpl() == each.twin.unsafeGetTensorImpl()) {
      return each.tensor;
    }
    if (!is_composite(each.tensor)) {
      arguments.push_back(&each.tensor);
    }
  }
  if (result.defined() && result.is_cpu() && is_composite(result)) {
    check_dtype(result.dtype(), last_launch);
    return map_components(result, c10::Device(kDeviceType, device),
                          [&](const at::Tensor &component) {
                            return return_result(at::Tensor(component), exchanged, device);
                          });
  }
  return return_shared(std::move(result), arguments, device);
}

void write_back_any(const Exchanged &each, c10::ArrayRef<Exchanged> exchanged,
                    c10::DeviceIndex device) {
  if (is_composite(each.tensor)) {
    assign_components(each.tensor, each.twin, [&](const at::Tensor &component) {
      return return_result(at::Tensor(component), exchanged, device);
    });
  } else {
    write_back(each.tensor, each.twin);
  }
}

void write_back_all(c10::ArrayRef<Exchanged> exchanged, c10::DeviceIndex device) {
  for (const auto &each : exchanged) {
    if (each.written) {
      write_back_any(each, exchanged, device);
    }
  }
}

// Passes warnings on, and remembers whether there were any: on a worker they would be lost.
class WarningNotes final : public c10::WarningHandler {
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

bool is_view(const OperatorHandle &op) {
  const auto is_alias = [](const c10::Argument &each) { return each.alias_info() != nullptr; };
  return std::ranges::any_of(op.schema().returns(), is_alias) && !op.schema().is_mutable();
}

int64_t count_elements(c10::ArrayRef<Exchanged> exchanged) {
  int64_t elements = 0;
  for (const auto &each : exchanged) {
    elements += each.tensor.numel();
  }
  return elements;
}

bool is_mask(const at::Tensor &index) {
  return index.defined() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
}

// Whether how many elements are taken is for the content of the indices to say.
bool takes_by_mask(const IValue &indices) {
  return std::ranges::any_of(indices.toListRef(), [](const IValue &index) {
    return index.isTensor() && is_mask(index.toTensor());
  });
}

} // namespace

bool returns_object(const OperatorHandle &op) {
  return std::ranges::any_of(op.schema().returns(), [](const c10::Argument &result) {
    return result.type()->kind() == c10::TypeKind::ClassType;
  });
}

namespace {

// Whether there are results that are not arguments which the operator writes to.
bool has_results(const OperatorHandle &op) {
  return std::ranges::any_of(op.schema().returns(), [](const c10::Argument &result) {
    return result.alias_info() == nullptr || !result.alias_info()->isWrite();
  });
}

} // namespace

bool draws(const OperatorHandle &op) {
  return op.hasTag(at::Tag::nondeterministic_seeded) && !only_seems_to_draw(op.schema().name());
}

BoxedOperator::BoxedOperator(const OperatorHandle &op, c10::DispatchKey kernel_key, Drawing drawing)
    : op_(op), name_(op.schema().name()), overload_(op.schema().overload_name()),
      is_blocked_(is_blocked(op.operator_name())),
      draws_(drawing == Drawing::kRefused && draws(op)),
      has_kernel_(op.hasComputedKernelForDispatchKey(kernel_key)),
      returns_object_(returns_object(op)), has_results_(has_results(op)),
      is_pointwise_(op.hasTag(at::Tag::pointwise)), is_dense_(kernel_key == c10::DispatchKey::CPU),
      is_copy_(!is_dense_ && copies_composites(name_)), is_view_(is_view(op)),
      is_indexing_(takes_by_indices(name_)), can_queue_(false), host_result_(host_result(name_)) {
  can_queue_ = is_dense_ && !is_copy_ && !is_view_ && host_result_ < 0 && can_be_queued(op);
  for (const auto &argument : op.schema().arguments()) {
    const auto *alias = argument.alias_info();
    written_.push_back(alias != nullptr && alias->isWrite());
    by_value_.push_back(counts_by_numbers(name_) || Forecasts::matters_by_value(argument));
  }
}

void BoxedOperator::run(torch::jit::Stack *stack) {
  check_servable();
  ExchangeList exchanged;
  const auto place = exchange_arguments(stack, exchanged);
  const auto elements = count_elements(exchanged);
  if (!can_queue_ || !is_long(elements)) {
    launch(stack, exchanged, place, elements, /*is_queued=*/false);
    return;
  }
  LongLaunch long_launch(cost_, elements, place.device);
  launch(stack, exchanged, place, elements, long_launch.is_queued());
}

void BoxedOperator::queue(torch::jit::Stack *stack) {
  check_servable();
  ExchangeList exchanged;
  const auto place = exchange_arguments(stack, exchanged);
  launch(stack, exchanged, place, count_elements(exchanged), /*is_queued=*/true);
}

void BoxedOperator::launch(torch::jit::Stack *stack, ExchangeList &exchanged, Place place,
                           int64_t elements, bool is_queued) {
  const auto device = place.device;
  if (openreg_captures_exist() && !is_view_ && is_capturing(device)) [[unlikely]] {
    capture(stack, exchanged, place, elements);
    return;
  }
  Forecasts::Key key;
  std::shared_ptr<Forecast> forecast;
  if (can_queue_ && may_queue() && (is_queued || !is_idle(device)) &&
      make_key(*stack, exchanged, key)) {
    forecast = forecasts_.find(key);
    if (forecast != nullptr && forecast->can_be_queued) {
      queue_launch(op_, stack, written_.size(), forecast, exchanged, cost_, elements, device);
      return;
    }
  }
  std::optional<ThreadCount> threads;
  if (can_queue_) { // as many as on a worker
    threads.emplace(threads_inline(elements));
  }
  std::optional<Turn> turn;
  if (!is_view_) {
    turn.emplace(device >= 0 ? device : exchanged.front().tensor.device().index());
  }
  if (key.empty()) {
    run_now(stack, exchanged, place, nullptr);
  } else {
    run_and_learn(stack, exchanged, place, elements, std::move(key), forecast != nullptr);
  }
  write_back_all(exchanged, device);
  exchange_results(stack, exchanged, device);
}

// Nothing is done, so results cannot be looked at: what they will be like must be known.
void BoxedOperator::capture(torch::jit::Stack *stack, ExchangeList &exchanged, Place place,
                            int64_t elements) {
  Forecasts::Key key;
  if (!can_queue_ || !make_key(*stack, exchanged, key)) {
    refuse_in_capture(place.device, name_ + ", of which the results depend on data");
  }
  auto forecast = forecasts_.find(key);
  if (forecast == nullptr) {
    forecast = learn_on_stand_ins(*stack, exchanged, place);
    if (refresh_twins(*stack, exchanged)) { // some argument has another size now
      capture(stack, exchanged, place, elements);
      return;
    }
    forecasts_.learn(std::move(key), forecast);
  }
  if (!forecast->can_be_queued) {
    refuse_in_capture(place.device, name_ + ", of which the results cannot be told beforehand");
  }
  queue_launch(op_, stack, written_.size(), forecast, exchanged, cost_, elements, place.device);
}

void BoxedOperator::check_servable() const {
  if (is_blocked_) {
    refuse_operator(op_.operator_name());
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      !draws_, "openreg: '", name_,
      "' draws random numbers and openreg has no kernel for it: the host's "
      "generator is not used in its place. Compute it on the CPU and copy the result.");
  TORCH_CHECK_NOT_IMPLEMENTED(
      has_kernel_, "Could not run '", name_, (overload_.empty() ? "" : "."), overload_,
      "' with arguments from the '", platform_name(),
      "' backend: openreg has neither a kernel for it nor a CPU kernel to run.");
  TORCH_CHECK_NOT_IMPLEMENTED(
      !returns_object_, "openreg: '", name_,
      "' returns an object that may keep its arguments, which a kernel on a device must not. "
      "Call it with CPU tensors.");
}

// What the launch is remembered by; left empty when nothing can be remembered of it.
bool BoxedOperator::make_key(const torch::jit::Stack &stack, const ExchangeList &exchanged,
                             Forecasts::Key &key) const {
  if ((is_indexing_ && takes_by_mask(torch::jit::peek(stack, 1, written_.size()))) ||
      std::ranges::any_of(exchanged, [](const auto &each) { return is_composite(each.tensor); }) ||
      !Forecasts::make_key(stack, by_value_, key)) {
    key.clear();
    return false;
  }
  return true;
}

void BoxedOperator::run_and_learn(torch::jit::Stack *stack, const ExchangeList &exchanged,
                                  Place place, int64_t elements, Forecasts::Key key,
                                  bool is_known) {
  Allocations allocations;
  WarningNotes warnings;
  const auto began_ns = now_ns();
  {
    const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
    run_now(stack, exchanged, place, &allocations);
  }
  cost_.note(elements, now_ns() - began_ns);
  if (is_known) {
    return;
  }
  auto forecast = make_forecast(*stack, op_.schema().returns().size(), exchanged, allocations);
  if (warnings.any()) {
    forecast->can_be_queued = false;
  }
  forecasts_.learn(std::move(key), std::move(forecast));
}

// With arguments that look the same: of zeros, which are good indices; else of ones.
std::shared_ptr<Forecast> BoxedOperator::learn_on_stand_ins(const torch::jit::Stack &stack,
                                                            const ExchangeList &exchanged,
                                                            Place place) const {
  const auto learn = [&](int number) {
    StandIns stand_ins(number);
    ExchangeList copied;
    for (const auto &each : exchanged) {
      copied.push_back({each.tensor, stand_ins.of(each.twin), each.written});
    }
    torch::jit::Stack copies;
    for (auto value = stack.end() - static_cast<std::ptrdiff_t>(written_.size());
         value != stack.end(); ++value) {
      copies.push_back(stand_ins.in(*value));
    }
    Allocations allocations;
    {
      const auto redirection = Redirection::rehearse(&allocations, place.host_bytes);
      op_.redispatchBoxed(kCpuKernel, &copies);
    }
    for (const auto &each : copied) {
      if (each.written && each.tensor.sizes() != each.twin.sizes()) {
        each.tensor.resize_(each.twin.sizes()); // now, so that no replay has to
      }
    }
    return make_forecast(copies, op_.schema().returns().size(), copied, allocations);
  };
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  try {
    return learn(0);
  } catch (const c10::Error &) {
    return learn(1);
  }
}

// Puts the twins of tensors that were resized in the place of those that they had. Whether there
// are any.
bool BoxedOperator::refresh_twins(torch::jit::Stack &stack, ExchangeList &exchanged) const {
  bool any = false;
  for (auto &each : exchanged) {
    const auto &twin = twin_of(each.tensor);
    if (each.twin.is_same(twin)) {
      continue;
    }
    for (auto value = stack.end() - static_cast<std::ptrdiff_t>(written_.size());
         value != stack.end(); ++value) {
      if (value->isTensor() && value->toTensor().is_same(each.twin)) {
        *value = twin;
      }
    }
    each.twin = twin;
    any = true;
  }
  return any;
}

void BoxedOperator::run_now(torch::jit::Stack *stack, const ExchangeList &exchanged, Place place,
                            Allocations *allocations) const {
  try {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Redirection redirection(place.device, allocations, place.host_bytes);
    if (is_dense_) {
      op_.redispatchBoxed(kCpuKernel, stack);
    } else {
      op_.callBoxed(stack); // the twins' keys lead to the kernel for their mix of layouts
    }
  } catch (...) {
    write_back_all(exchanged, place.device); // what it resized before it failed
    throw;
  }
}

// Puts twins in the place of device tensors and "cpu" in the place of a device argument.
BoxedOperator::Place BoxedOperator::exchange_arguments(torch::jit::Stack *stack,
                                                       ExchangeList &exchanged) const {
  const auto arguments = stack->end() - static_cast<std::ptrdiff_t>(written_.size());
  LaunchDevice where(name_.c_str(), overload_.c_str());
  int named_device = -1;
  for (size_t i = 0; i < written_.size(); ++i) {
    auto &value = arguments[static_cast<std::ptrdiff_t>(i)];
    const bool written = written_[i];
    if (value.isTensor()) {
      see(where, value.toTensor(), written);
      value = exchange(value.toTensor(), written, exchanged);
    } else if (value.isTensorList()) {
      LaunchDevice::List list(where);
      c10::List<at::Tensor> twins;
      for (const auto &tensor : value.toTensorVector()) {
        see(list, tensor, written);
        twins.push_back(exchange(tensor, written, exchanged));
      }
      value = std::move(twins);
    } else if (value.isOptionalTensorList()) {
      LaunchDevice::List list(where);
      c10::List<std::optional<at::Tensor>> twins;
      for (const auto &tensor : value.toOptionalTensorVector()) {
        if (tensor.has_value()) {
          see(list, *tensor, written);
        }
        twins.push_back(tensor.has_value() ? std::optional(exchange(*tensor, written, exchanged))
                                           : std::nullopt);
      }
      value = std::move(twins);
    } else if (value.isScalar()) {
      where.see_number();
    } else {
      where.skip();
    }
    if (value.isDevice() && value.toDevice().type() == kDeviceType) {
      named_device =
          value.toDevice().has_index() ? value.toDevice().index() : openreg_device_current();
      value = c10::Device(c10::DeviceType::CPU);
    }
  }
  if (is_copy_) {
    return {exchanged.front().written ? exchanged.front().tensor.device().index()
                                      : static_cast<c10::DeviceIndex>(-1),
            0};
  }
  const auto device =
      named_device >= 0 ? static_cast<c10::DeviceIndex>(named_device) : where.index();
  return {device, is_pointwise_ || !has_results_ ? where.host_bytes(has_results_) : uint8_t{0}};
}

template <class Where>
void BoxedOperator::see(Where &where, const at::Tensor &tensor, bool written) const {
  if (is_copy_) { // it has a device on each side
    return;
  }
  where.see(tensor);
  if (written) {
    where.see_written(tensor);
  }
}

at::Tensor BoxedOperator::exchange(const at::Tensor &tensor, bool written,
                                   ExchangeList &exchanged) const {
  if (!is_on_device(tensor)) {
    return tensor;
  }
  if (is_composite(tensor)) {
    auto twin = map_components(tensor, c10::kCPU, [&](const at::Tensor &component) {
      exchanged.push_back({component, twin_of(component), written});
      return exchanged.back().twin;
    });
    exchanged.push_back({tensor, std::move(twin), written});
  } else {
    exchanged.push_back({tensor, twin_of(tensor), written});
  }
  if (!is_dense_ && tensor.requires_grad()) {
    // Some sparse kernels look at this to know what a backward will need.
    auto &twin = exchanged.back().twin;
    twin = twin.detach();
    twin.set_requires_grad(true);
  }
  return exchanged.back().twin;
}

void BoxedOperator::exchange_results(torch::jit::Stack *stack, const ExchangeList &exchanged,
                                     c10::DeviceIndex device) const {
  const auto count = op_.schema().returns().size();
  const auto results = stack->end() - static_cast<std::ptrdiff_t>(count);
  for (size_t i = 0; i < count; ++i) {
    auto &value = results[static_cast<std::ptrdiff_t>(i)];
    if (static_cast<int>(i) == host_result_) {
      value = value.toTensor().clone(); // out of device memory
    } else if (value.isTensor()) {
      value = return_result(std::move(value).toTensor(), exchanged, device);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (auto &tensor : value.toTensorVector()) {
        list.push_back(return_result(std::move(tensor), exchanged, device));
      }
      value = std::move(list);
    }
  }
}

} // namespace openreg
