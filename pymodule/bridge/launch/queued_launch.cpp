#include "launch/queued_launch.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "launch/argument_devices.h"
#include "launch/hidden_operators.h"
#include "streams/denormals.h"
#include "streams/observer.h"

namespace openreg {

namespace {

// ---- one launch ---------------------------------------------------------------------------------

bool is_on_some_device(const at::Tensor &tensor) {
  return openreg_arena_device_of(openreg_device_view(tensor.const_data_ptr())) >= 0;
}

// Copies host tensors: the program may change them once the call has returned.
c10::IValue copy_host_tensors(c10::IValue value) {
  if (value.isTensor()) {
    const auto &tensor = value.toTensor();
    const bool is_on_host = tensor.defined() && tensor.numel() > 0 && !is_on_some_device(tensor) &&
                            !tensor.unsafeGetTensorImpl()->is_wrapped_number();
    return is_on_host ? c10::IValue(tensor.clone()) : value;
  }
  if (value.isTensorList() || value.isOptionalTensorList()) {
    auto list = value.toList().copy();
    for (size_t i = 0; i < list.size(); ++i) {
      list.set(i, copy_host_tensors(list.get(i)));
    }
    return list;
  }
  return value;
}

class QueuedLaunch {
public:
  QueuedLaunch(CpuKernel kernel, std::shared_ptr<OutputPlan> plan, LaunchCost &cost,
               int64_t elements, c10::DeviceIndex device)
      : kernel_(std::move(kernel)), device_(device), plan_(std::move(plan)), cost_(cost),
        elements_(elements), threads_(share_of_threads(elements, at::get_num_threads())),
        grad_mode_(c10::GradMode::is_enabled()), denormals_(denormal_mode()) {}

  // Moves the arguments from the stack.
  void take_arguments(torch::jit::Stack *stack, size_t count) {
    const auto first = stack->end() - static_cast<std::ptrdiff_t>(count);
    stack_.assign(std::make_move_iterator(first), std::make_move_iterator(stack->end()));
    stack->erase(first, stack->end());
  }

  void copy_host_arguments() { std::ranges::transform(stack_, stack_.begin(), &copy_host_tensors); }

  // Makes the results and pushes them on the stack. Takes and frees device memory as the plan says.
  void push_results(torch::jit::Stack *stack, c10::ArrayRef<Substituted> substituted) {
    auto blocks = plan_->allocate(device_);
    auto next = blocks.begin();
    for (const auto &planned : plan_->returns) {
      c10::List<at::Tensor> tensors;
      for (const auto &each : planned.tensors) {
        tensors.push_back(make_result(each, substituted, next));
      }
      stack->push_back(planned.is_list ? c10::IValue(tensors) : c10::IValue(tensors.get(0)));
    }
  }

  const char *name() const { return kernel_.op().schema().name().c_str(); }

  // Call this right before the launch is given to the stream.
  void note_queueing(int stream) {
    notify_observers([&](Observer &observer) {
      observer_ = observer.queue({device_, stream}, kernel_.op(), stack_);
    });
    queued_on_idle_ns_ = is_idle(device_) ? now_ns() : 0;
  }

  // The worker's function. `launch` is the QueuedLaunch, which this destroys.
  static openreg_status run(void *launch) {
    const std::unique_ptr<QueuedLaunch> self(static_cast<QueuedLaunch *>(launch));
    return self->run([&] { self->run_and_note(self->stack_); }, self->stack_);
  }

  // Runs the launch now. Returns whether the results that were pushed have the kernel's values. If
  // not, `results` has the kernel's results instead.
  bool run_now(torch::jit::Stack &results) {
    run_kernel(stack_);
    try {
      check_results(stack_);
      return true;
    } catch (const c10::Error &) {
      results = std::move(stack_);
      return false;
    }
  }

  // Runs the launch in a replay of its graph. It does not record the kernel's time: the policy
  // decides for a graph as a whole.
  openreg_status replay() {
    for (auto &reservation : reservations_) {
      reservation.is_held = false;
    }
    replayed_.assign(stack_.begin(), stack_.end()); // reuses its memory
    const auto status = run([this] { run_kernel(replayed_); }, replayed_);
    replayed_.clear();
    return status;
  }

private:
  void reserve(AllocationIndex allocation, const openreg_block &block, size_t bytes) {
    reservations_.push_back({allocation, {kernel_address(block.address), bytes}});
  }

  // `next` is the block of the next fresh result.
  at::Tensor make_result(const PlannedTensor &planned, c10::ArrayRef<Substituted> substituted,
                         std::vector<Block>::iterator &next) {
    if (planned.kind == PlannedTensor::Kind::kUndefined) {
      return {};
    }
    if (planned.kind == PlannedTensor::Kind::kArgument) {
      return substituted[planned.argument].tensor;
    }
    const bool is_fresh = planned.kind == PlannedTensor::Kind::kFresh;
    auto *block = is_fresh ? (next++)->release() : allocate_block(device_, planned.bytes);
    auto result = make_planned(planned, block);
    if (is_fresh) {
      reserve(planned.allocation, *block, planned.bytes);
    }
    return result;
  }

  template <class Kernel> openreg_status run(Kernel kernel, const torch::jit::Stack &stack) {
    try {
      kernel();
      check_results(stack);
      return OPENREG_OK;
    } catch (const c10::Error &error) {
      return fail(error.what_without_backtrace());
    } catch (const std::exception &error) {
      return fail(error.what());
    }
  }

  void run_and_note(torch::jit::Stack &stack) {
    const auto began_ns = now_ns();
    if (queued_on_idle_ns_ != 0) {
      record_handoff(began_ns - queued_on_idle_ns_);
    }
    keep_on_share_of_cores(device_);
    run_kernel(stack);
    cost_.note(elements_, now_ns() - began_ns);
  }

  void run_kernel(torch::jit::Stack &stack) {
    const ThreadCount threads(threads_);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const c10::AutoGradMode grad_mode(grad_mode_);
    set_denormal_mode(denormals_);
    const Reservations reserved(reservations_);
    const HiddenOperators hidden;
    kernel_.run(&stack);
  }

  void check_results(const torch::jit::Stack &stack) {
    size_t reservation = 0;
    for (size_t i = 0; i < plan_->returns.size(); ++i) {
      const auto &planned = plan_->returns[i];
      if (planned.is_list) {
        const auto tensors = stack[i].toTensorVector();
        require(tensors.size() == planned.tensors.size(),
                "the kernel returned a list of another length than planned");
        for (size_t j = 0; j < tensors.size(); ++j) {
          check_result(planned.tensors[j], tensors[j], reservation);
        }
      } else {
        check_result(planned.tensors.front(), stack[i].toTensor(), reservation);
      }
    }
  }

  void check_result(const PlannedTensor &planned, const at::Tensor &result, size_t &reservation) {
    if (planned.kind != PlannedTensor::Kind::kFresh &&
        planned.kind != PlannedTensor::Kind::kEmpty) {
      return;
    }
    require(result.defined() && result.sizes() == planned.sizes &&
                result.strides() == planned.strides && result.scalar_type() == planned.dtype,
            "the kernel returned a tensor of another shape or dtype than planned");
    if (planned.kind == PlannedTensor::Kind::kEmpty) {
      return;
    }
    const auto &[number, memory, is_held] = reservations_[reservation++];
    void *address = memory.kernel_address;
    if (result.const_data_ptr() != address) { // the kernel allocated it elsewhere
      require(!is_held, "the kernel kept the memory that was reserved for its result");
      at::from_blob(address, planned.sizes, planned.strides, result.options()).copy_(result);
    }
  }

  // A plan that was wrong once is not used again.
  void require(bool holds, const char *otherwise) {
    if (!holds) [[unlikely]] {
      plan_->can_be_queued.store(false, std::memory_order_relaxed);
      TORCH_CHECK(false, otherwise);
    }
  }

  openreg_status fail(const char *what) const {
    if (observer_ != nullptr) [[unlikely]] {
      observer_->fail();
    }
    return openreg_fail(OPENREG_LAUNCH_FAILURE,
                        "%s error: '%s' failed after its launch had returned: %s\n"
                        "A later call may report this error, so the stack trace may be misleading. "
                        "For debugging, set OPENREG_LAUNCH_BLOCKING=1.",
                        platform_name(), c10::toString(kernel_.op().operator_name()).c_str(), what);
  }

  CpuKernel kernel_;
  c10::DeviceIndex device_;
  std::shared_ptr<OutputPlan> plan_;
  LaunchCost &cost_;
  int64_t elements_;
  int threads_;
  bool grad_mode_;
  unsigned denormals_;
  int64_t queued_on_idle_ns_ = 0; // 0: the stream was busy
  torch::jit::Stack stack_;
  torch::jit::Stack replayed_;                                  // while a replay runs
  c10::SmallVector<Reservations::Reservation, 2> reservations_; // one per fresh result, in order
  std::unique_ptr<Observer::LaunchObserver> observer_;          // null: none
};

} // namespace

void queue_launch(const CpuKernel &kernel, torch::jit::Stack *stack, size_t arguments,
                  const std::shared_ptr<OutputPlan> &plan, c10::ArrayRef<Substituted> substituted,
                  LaunchCost &cost, int64_t elements, c10::DeviceIndex device) {
  auto launch = std::make_unique<QueuedLaunch>(kernel, plan, cost, elements, device);
  launch->take_arguments(stack, arguments);
  launch->copy_host_arguments();
  launch->push_results(stack, substituted);
  int stream = OPENREG_STREAM_DEFAULT;
  check(openreg_stream_current(device, &stream));
  if (openreg_stream_is_capturing(device, stream)) [[unlikely]] {
    const char *name = launch->name();
    capture_on_stream(device, stream, name,
                      [launch = std::move(launch)] { return launch->replay(); });
    return;
  }
  launch->note_queueing(stream);
  launch_on_stream(device, stream, &QueuedLaunch::run, launch.get());
  (void)launch.release(); // the worker owns it
}

bool run_planned(const CpuKernel &kernel, torch::jit::Stack *stack, size_t arguments,
                 const std::shared_ptr<OutputPlan> &plan, c10::ArrayRef<Substituted> substituted,
                 LaunchCost &cost, int64_t elements, c10::DeviceIndex device) {
  QueuedLaunch launch(kernel, plan, cost, elements, device);
  launch.take_arguments(stack, arguments);
  torch::jit::Stack results;
  launch.push_results(&results, substituted);
  const bool as_planned = launch.run_now(results);
  stack->insert(stack->end(), std::make_move_iterator(results.begin()),
                std::make_move_iterator(results.end()));
  return as_planned;
}

} // namespace openreg
