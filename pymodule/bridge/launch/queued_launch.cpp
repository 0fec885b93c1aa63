#include "launch/queued_launch.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "launch/launch_device.h"
#include "streams/denormals.h"
#include "streams/stream_observer.h"

namespace openreg {

namespace {

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

using Block = std::unique_ptr<openreg_block, decltype(&free_block)>;

class QueuedLaunch {
public:
  QueuedLaunch(const c10::OperatorHandle &op, std::shared_ptr<Forecast> forecast, LaunchCost &cost,
               int64_t elements, c10::DeviceIndex device)
      : op_(op), device_(device), forecast_(std::move(forecast)), cost_(cost), elements_(elements),
        threads_(share_of_threads(elements, at::get_num_threads())),
        grad_mode_(c10::GradMode::is_enabled()), denormals_(denormal_mode()) {}

  // Of memory on the host that the program may change when the call has returned.
  void take_arguments(torch::jit::Stack *stack, size_t count) {
    const auto first = stack->end() - static_cast<std::ptrdiff_t>(count);
    std::transform(std::make_move_iterator(first), std::make_move_iterator(stack->end()),
                   std::back_inserter(stack_), &capture);
    stack->erase(first, stack->end());
  }

  // Memory that the kernel needs while it runs, the caller's. To be asked for before the results.
  std::vector<Block> allocate_temporaries() {
    std::vector<Block> blocks;
    for (const auto &[allocation, bytes] : forecast_->temporaries) {
      blocks.emplace_back(allocate_block(device_, bytes), &free_block);
      reserve(allocation, *blocks.back(), bytes);
    }
    temporaries_ = blocks.size();
    return blocks;
  }

  // The tensors that the launch will have made.
  void push_results(torch::jit::Stack *stack, c10::ArrayRef<Exchanged> exchanged) {
    for (const auto &expected : forecast_->returns) {
      c10::List<at::Tensor> tensors;
      for (const auto &each : expected.tensors) {
        tensors.push_back(make_result(each, exchanged));
      }
      stack->push_back(expected.is_list ? c10::IValue(tensors) : c10::IValue(tensors.get(0)));
    }
  }

  const char *name() const { return op_.schema().name().c_str(); }

  // Right before it is given to the stream.
  void note_queueing(int stream) {
    tell_watcher([&](Watcher &watcher) {
      watched_ = watcher.queue({device_, stream}, op_, stack_);
    });
    queued_on_idle_ns_ = is_idle(device_) ? now_ns() : 0;
  }

  // For the worker. `launch` is the QueuedLaunch, which it destroys.
  static openreg_status run(void *launch) {
    const std::unique_ptr<QueuedLaunch> self(static_cast<QueuedLaunch *>(launch));
    return self->run([&] { self->run_and_note(self->stack_); }, self->stack_);
  }

  // For a replay of the graph that has it, any number of times. How long it takes is of no
  // interest: whether the graph is queued is asked for all of it.
  openreg_status replay() {
    for (auto &reservation : reservations_) {
      reservation.is_held = false;
    }
    replayed_.assign(stack_.begin(), stack_.end()); // in memory that it has
    const auto status = run([this] { run_kernel(replayed_); }, replayed_);
    replayed_.clear();
    return status;
  }

private:
  void reserve(WhichAllocation allocation, const openreg_block &block, size_t bytes) {
    reservations_.push_back({allocation, {kernel_address(block.address), bytes}});
  }

  at::Tensor make_result(const ExpectedTensor &expected, c10::ArrayRef<Exchanged> exchanged) {
    if (expected.kind == ExpectedTensor::Kind::kUndefined) {
      return {};
    }
    if (expected.kind == ExpectedTensor::Kind::kArgument) {
      return exchanged[expected.argument].tensor;
    }
    auto *block = allocate_block(device_, expected.bytes);
    auto result =
        make_tensor(make_storage(block, expected.bytes), c10::scalarTypeToTypeMeta(expected.dtype));
    result.unsafeGetTensorImpl()->set_sizes_and_strides(expected.sizes, expected.strides);
    if (expected.kind == ExpectedTensor::Kind::kFresh) {
      reserve(expected.allocation, *block, expected.bytes);
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
      note_hand_over(began_ns - queued_on_idle_ns_);
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
    op_.redispatchBoxed(kCpuKernel, &stack);
  }

  void check_results(const torch::jit::Stack &stack) {
    for (size_t i = 0; i < temporaries_; ++i) {
      require(!reservations_[i].is_held, "kept memory that it was expected to free");
    }
    size_t reservation = temporaries_;
    for (size_t i = 0; i < forecast_->returns.size(); ++i) {
      const auto &expected = forecast_->returns[i];
      if (expected.is_list) {
        const auto tensors = stack[i].toTensorVector();
        require(tensors.size() == expected.tensors.size(),
                "gave more or fewer tensors than expected");
        for (size_t j = 0; j < tensors.size(); ++j) {
          check_result(expected.tensors[j], tensors[j], reservation);
        }
      } else {
        check_result(expected.tensors.front(), stack[i].toTensor(), reservation);
      }
    }
  }

  void check_result(const ExpectedTensor &expected, const at::Tensor &result, size_t &reservation) {
    if (expected.kind != ExpectedTensor::Kind::kFresh &&
        expected.kind != ExpectedTensor::Kind::kEmpty) {
      return;
    }
    require(result.defined() && result.sizes() == expected.sizes &&
                result.strides() == expected.strides && result.scalar_type() == expected.dtype,
            "gave another tensor than expected");
    if (expected.kind == ExpectedTensor::Kind::kEmpty) {
      return;
    }
    const auto &[number, memory, is_held] = reservations_[reservation++];
    void *address = memory.kernel_address;
    if (result.const_data_ptr() != address) { // the kernel allocated it elsewhere
      require(!is_held, "kept memory that was meant for its result");
      at::from_blob(address, expected.sizes, expected.strides, result.options()).copy_(result);
    }
  }

  // What was expected wrongly once is not expected again.
  void require(bool holds, const char *otherwise) {
    if (!holds) [[unlikely]] {
      forecast_->can_be_queued.store(false, std::memory_order_relaxed);
      TORCH_CHECK(false, otherwise);
    }
  }

  openreg_status fail(const char *what) const {
    if (watched_ != nullptr) [[unlikely]] {
      watched_->fail();
    }
    return openreg_fail(OPENREG_LAUNCH_FAILURE,
                        "%s error: '%s' failed after its launch had returned: %s\n"
                        "This may be raised by another call than the one that made the mistake. "
                        "For debugging, set OPENREG_LAUNCH_BLOCKING=1.",
                        platform_name(), c10::toString(op_.operator_name()).c_str(), what);
  }

  c10::OperatorHandle op_;
  c10::DeviceIndex device_;
  std::shared_ptr<Forecast> forecast_;
  LaunchCost &cost_;
  int64_t elements_;
  int threads_;
  bool grad_mode_;
  unsigned denormals_;
  int64_t queued_on_idle_ns_ = 0; // 0: the worker had other work then
  torch::jit::Stack stack_;
  torch::jit::Stack replayed_; // while a replay runs
  // One for each temporary allocation, then one for each fresh result, in their order.
  c10::SmallVector<Reservations::Reservation, 2> reservations_;
  size_t temporaries_ = 0;
  std::unique_ptr<Watcher::Queued> watched_; // null: by nobody
};

} // namespace

void queue_launch(const c10::OperatorHandle &op, torch::jit::Stack *stack, size_t arguments,
                  const std::shared_ptr<Forecast> &forecast, c10::ArrayRef<Exchanged> exchanged,
                  LaunchCost &cost, int64_t elements, c10::DeviceIndex device) {
  auto launch = std::make_unique<QueuedLaunch>(op, forecast, cost, elements, device);
  launch->take_arguments(stack, arguments);
  // Freed when the launch has its place on the stream: not before, for another thread that got the
  // memory might come first.
  const auto temporaries = launch->allocate_temporaries();
  launch->push_results(stack, exchanged);
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
  (void)launch.release(); // the worker's
}

} // namespace openreg
