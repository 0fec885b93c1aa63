#include "queued.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>
#include <omp.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <utility>

#include "launch.h"
#include "members.h"

namespace openreg {

namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// Handing a launch to a worker and back costs a few microseconds of both threads.
constexpr nanoseconds kDefaultThreshold(20'000);

// So many elements are added in less than the threshold.
constexpr int64_t kShortElements = 16384;

std::atomic<int64_t> threshold_ns{kDefaultThreshold.count()};

bool launches_block() {
  const openreg_config *config = nullptr;
  check(openreg_config_get(&config));
  return config->launch_blocking;
}

// ---- sharing the cores --------------------------------------------------------------------------

// One bit for each device that has had queued work: these share the cores that PyTorch computes
// with. The shares do not follow who is busy at the moment, for sums in another order are other
// numbers.
std::atomic<uint64_t> devices_in_use{0};

void use_share_of_cores(c10::DeviceIndex device, int host_threads) {
  const auto devices = std::max(1, std::popcount(devices_in_use.load(std::memory_order_relaxed)));
  keep_on_cores(devices == 1 ? -1 : device);
  const int share = std::max(1, host_threads / devices);
  if (at::get_num_threads() != share) {
    omp_set_num_threads(share); // of this thread; PyTorch's own function sets those to come as well
  }
}

// ---- denormal numbers
// ----------------------------------------------------------------------------

// Whether the calling thread takes them for zero, as torch.set_flush_denormal has it: a kernel does
// what the thread that launched it does.
#ifdef __SSE__
constexpr unsigned kFlushDenormals = _MM_FLUSH_ZERO_MASK | 0x40; // results, and operands

unsigned denormal_mode() {
  return _mm_getcsr() & kFlushDenormals;
}

void set_denormal_mode(unsigned mode) {
  if (const auto control = _mm_getcsr(); (control & kFlushDenormals) != mode) {
    _mm_setcsr((control & ~kFlushDenormals) | mode);
  }
}
#else
unsigned denormal_mode() {
  return 0;
}

void set_denormal_mode(unsigned) {}
#endif

// ---- one launch ---------------------------------------------------------------------------------

bool is_on_some_device(const at::Tensor &tensor) {
  return openreg_arena_device_of(openreg_device_view(tensor.const_data_ptr())) >= 0;
}

// Host tensors are captured by value: the program may change them when the call has returned.
c10::IValue capture(c10::IValue value) {
  if (value.isTensor()) {
    const auto &tensor = value.toTensor();
    const bool changes = tensor.defined() && tensor.numel() > 0 && !is_on_some_device(tensor) &&
                         !tensor.unsafeGetTensorImpl()->is_wrapped_number();
    return changes ? c10::IValue(tensor.clone()) : value;
  }
  if (value.isTensorList() || value.isOptionalTensorList()) {
    auto list = value.toList().copy();
    for (size_t i = 0; i < list.size(); ++i) {
      list.set(i, capture(list.get(i)));
    }
    return list;
  }
  return value;
}

class QueuedLaunch {
public:
  QueuedLaunch(const c10::OperatorHandle &op, std::shared_ptr<Forecast> forecast,
               c10::DeviceIndex device)
      : op_(op), device_(device), forecast_(std::move(forecast)),
        host_threads_(at::get_num_threads()), grad_mode_(c10::GradMode::is_enabled()),
        denormals_(denormal_mode()) {}

  void take_arguments(torch::jit::Stack *stack, size_t count) {
    const auto first = stack->end() - static_cast<std::ptrdiff_t>(count);
    std::transform(std::make_move_iterator(first), std::make_move_iterator(stack->end()),
                   std::back_inserter(stack_), &capture);
    stack->erase(first, stack->end());
  }

  // The tensors that the launch will have made.
  void push_results(torch::jit::Stack *stack, c10::ArrayRef<Exchanged> exchanged) {
    for (const auto &foretold : forecast_->returns) {
      c10::List<at::Tensor> tensors;
      for (const auto &each : foretold.tensors) {
        tensors.push_back(make_result(each, exchanged));
      }
      stack->push_back(foretold.is_list ? c10::IValue(tensors) : c10::IValue(tensors.get(0)));
    }
  }

  // For the worker. `launch` is the QueuedLaunch, which it destroys.
  static openreg_status run(void *launch) {
    const std::unique_ptr<QueuedLaunch> self(static_cast<QueuedLaunch *>(launch));
    try {
      self->run_kernel();
      self->check_results();
      return OPENREG_OK;
    } catch (const c10::Error &error) {
      return self->fail(error.what_without_backtrace());
    } catch (const std::exception &error) {
      return self->fail(error.what());
    }
  }

private:
  at::Tensor make_result(const ForetoldTensor &foretold, c10::ArrayRef<Exchanged> exchanged) {
    if (foretold.kind == ForetoldTensor::Kind::kUndefined) {
      return {};
    }
    if (foretold.kind == ForetoldTensor::Kind::kArgument) {
      return exchanged[foretold.argument].tensor;
    }
    auto *block = allocate_block(device_, foretold.bytes);
    auto result =
        make_tensor(make_storage(block, foretold.bytes), c10::scalarTypeToTypeMeta(foretold.dtype));
    result.unsafeGetTensorImpl()->set_sizes_and_strides(foretold.sizes, foretold.strides);
    offers_.push_back({foretold.allocation, {kernel_address(block->address), foretold.bytes}});
    return result;
  }

  void run_kernel() {
    use_share_of_cores(device_, host_threads_);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const c10::AutoGradMode grad_mode(grad_mode_);
    set_denormal_mode(denormals_);
    const Offering offering(offers_);
    const auto started = steady_clock::now();
    op_.redispatchBoxed(kCpuKernel, &stack_);
    forecast_->cost_ns.store((steady_clock::now() - started).count(), std::memory_order_relaxed);
  }

  void check_results() {
    size_t offer = 0;
    for (size_t i = 0; i < forecast_->returns.size(); ++i) {
      const auto &foretold = forecast_->returns[i];
      if (foretold.is_list) {
        const auto tensors = stack_[i].toTensorVector();
        require(tensors.size() == foretold.tensors.size(),
                "gave more or fewer tensors than foretold");
        for (size_t j = 0; j < tensors.size(); ++j) {
          check_result(foretold.tensors[j], tensors[j], offer);
        }
      } else {
        check_result(foretold.tensors.front(), stack_[i].toTensor(), offer);
      }
    }
  }

  void check_result(const ForetoldTensor &foretold, const at::Tensor &result, size_t &offer) {
    if (foretold.kind != ForetoldTensor::Kind::kFresh) {
      return;
    }
    require(result.defined() && result.sizes() == foretold.sizes &&
                result.strides() == foretold.strides && result.scalar_type() == foretold.dtype,
            "gave another tensor than foretold");
    const auto &[number, memory, is_held] = offers_[offer++];
    void *address = memory.kernel_address;
    if (result.const_data_ptr() != address) { // the kernel allocated it elsewhere
      require(!is_held, "kept memory that was meant for its result");
      at::from_blob(address, foretold.sizes, foretold.strides, result.options()).copy_(result);
    }
  }

  // What was foretold wrongly once is not foretold again.
  void require(bool holds, const char *otherwise) {
    if (!holds) [[unlikely]] {
      forecast_->can_be_queued.store(false, std::memory_order_relaxed);
      TORCH_CHECK(false, otherwise);
    }
  }

  openreg_status fail(const char *what) const {
    return openreg_fail(OPENREG_LAUNCH_FAILURE,
                        "openreg error: '%s' failed after its launch had returned: %s\n"
                        "This may be raised by another call than the one that made the mistake. "
                        "For debugging, set OPENREG_LAUNCH_BLOCKING=1.",
                        c10::toString(op_.operator_name()).c_str(), what);
  }

  c10::OperatorHandle op_;
  c10::DeviceIndex device_;
  std::shared_ptr<Forecast> forecast_;
  int host_threads_;
  bool grad_mode_;
  unsigned denormals_;
  torch::jit::Stack stack_;
  c10::SmallVector<Offering::Offer, 2> offers_; // one for each fresh result, in their order
};

// ---- forecasts ----------------------------------------------------------------------------------

// False when the next result cannot be made before the kernel has run.
bool foretell(const at::Tensor &result, c10::ArrayRef<Exchanged> exchanged,
              const Allocations &allocations, ForetoldTensor &foretold) {
  if (!result.defined()) {
    return true;
  }
  const auto *impl = result.unsafeGetTensorImpl();
  for (size_t i = 0; i < exchanged.size(); ++i) {
    if (exchanged[i].twin.unsafeGetTensorImpl() == impl) {
      foretold.kind = ForetoldTensor::Kind::kArgument;
      foretold.argument = i;
      return true;
    }
  }
  if (!is_fresh(result) || has_members(result) || result.storage_offset() != 0 ||
      result.is_conj() || result.is_neg() || result._is_zerotensor()) {
    return false;
  }
  // Memory that the kernel freed may have been allocated again: the last one at the address counts.
  const auto &list = allocations.list;
  const auto found = std::ranges::find(list.rbegin(), list.rend(), result.storage().data(),
                                       &Allocation::kernel_address);
  if (found == list.rend() || found->bytes != result.storage().nbytes()) {
    return false;
  }
  foretold.kind = ForetoldTensor::Kind::kFresh;
  // Libraries that allocate raw memory keep some of it: the order of allocations is not the same
  // again, and what is offered might be kept.
  const auto of_its_size = std::ranges::count(list, found->bytes, &Allocation::bytes);
  foretold.allocation = !allocations.has_raw ? static_cast<size_t>(list.rend() - found - 1)
                        : of_its_size == 1   ? ForetoldTensor::kOfItsSize
                                             : ForetoldTensor::kAnywhere;
  foretold.bytes = found->bytes;
  foretold.dtype = result.scalar_type();
  foretold.sizes = result.sizes();
  foretold.strides = result.strides();
  return true;
}

bool is_unchanged(const Exchanged &each) {
  return !each.written || (each.tensor.sizes() == each.twin.sizes() &&
                           each.tensor.strides() == each.twin.strides() &&
                           each.tensor.is_conj() == each.twin.is_conj() &&
                           each.tensor.is_neg() == each.twin.is_neg() &&
                           !is_redirected(each.twin.storage().data_ptr()));
}

// Results that share memory with each other need more than each one's forecast.
bool all_differ(const std::vector<ForetoldReturn> &returns) {
  std::vector<size_t> allocations;
  for (const auto &each : returns) {
    for (const auto &tensor : each.tensors) {
      if (tensor.kind == ForetoldTensor::Kind::kFresh &&
          tensor.allocation < ForetoldTensor::kOfItsSize) {
        allocations.push_back(tensor.allocation);
      }
    }
  }
  std::ranges::sort(allocations);
  return std::ranges::adjacent_find(allocations) == allocations.end();
}

} // namespace

nanoseconds queueing_threshold() {
  return nanoseconds(threshold_ns.load(std::memory_order_relaxed));
}

void set_queueing_threshold(nanoseconds threshold) {
  threshold_ns.store(threshold.count(), std::memory_order_relaxed);
}

int64_t short_launch_elements() {
  return queueing_threshold().count() == 0 ? 0 : kShortElements;
}

bool may_queue() {
  static const bool blocks = launches_block();
  return !blocks && !Turn::any();
}

std::shared_ptr<Forecast> make_forecast(const torch::jit::Stack &stack, size_t returns,
                                        c10::ArrayRef<Exchanged> exchanged,
                                        const Allocations &allocations, nanoseconds cost) {
  auto forecast = std::make_shared<Forecast>();
  forecast->cost_ns = cost.count();
  bool can_be_queued = std::ranges::all_of(exchanged, &is_unchanged);
  for (auto value = stack.end() - static_cast<std::ptrdiff_t>(returns); value != stack.end();
       ++value) {
    auto &foretold = forecast->returns.emplace_back();
    foretold.is_list = value->isTensorList();
    if (!foretold.is_list && !value->isTensor()) {
      return forecast;
    }
    for (const auto &tensor :
         foretold.is_list ? value->toTensorVector() : std::vector<at::Tensor>{value->toTensor()}) {
      can_be_queued &= foretell(tensor, exchanged, allocations, foretold.tensors.emplace_back());
    }
  }
  forecast->can_be_queued = can_be_queued && all_differ(forecast->returns);
  return forecast;
}

void keep_on_cores(int device) {
  constexpr int kNotKnown = -2;
  thread_local int kept_on = kNotKnown;
  if (device != kept_on) {
    openreg_device_bind_thread(device);
    kept_on = device;
  }
}

bool is_idle(c10::DeviceIndex device) {
  int stream = OPENREG_STREAM_DEFAULT;
  check(openreg_stream_current(device, &stream));
  return openreg_stream_is_idle(device, stream);
}

bool is_worth_queueing(const Forecast &forecast, c10::DeviceIndex device) {
  return forecast.cost_ns.load(std::memory_order_relaxed) >= queueing_threshold().count() ||
         !is_idle(device);
}

void queue_launch(const c10::OperatorHandle &op, torch::jit::Stack *stack, size_t arguments,
                  const std::shared_ptr<Forecast> &forecast, c10::ArrayRef<Exchanged> exchanged,
                  c10::DeviceIndex device) {
  devices_in_use.fetch_or(uint64_t{1} << device, std::memory_order_relaxed);
  auto launch = std::make_unique<QueuedLaunch>(op, forecast, device);
  launch->take_arguments(stack, arguments);
  launch->push_results(stack, exchanged);
  int stream = OPENREG_STREAM_DEFAULT;
  check(openreg_stream_current(device, &stream));
  launch_on_stream(device, stream, &QueuedLaunch::run, launch.get());
  (void)launch.release(); // the worker's
}

} // namespace openreg
