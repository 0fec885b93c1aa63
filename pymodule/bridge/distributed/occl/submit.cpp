// From a Request to work on a stream.

#include "distributed/occl/process_group_occl.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

#include "launch/policy.h"
#include "streams/inline_guard.h"
#include "tensor/known_values.h"

namespace openreg {

namespace {

int64_t count_elements(const Tensors &tensors) {
  int64_t count = 0;
  for (const auto &tensor : tensors) {
    count += tensor.numel();
  }
  return count;
}

at::ScalarType dtype_of(const Tensors &inputs, const Tensors &outputs) {
  const auto &some = inputs.empty() ? outputs : inputs;
  return some.empty() ? at::kByte : some.front().scalar_type();
}

void append(Tensors &to, const Tensors &from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Makes work that is queued on `stream` from now on wait for the current stream's work.
void wait_for_current(c10::DeviceIndex device, int stream) {
  int current = OPENREG_STREAM_DEFAULT;
  check(openreg_stream_current(device, &current));
  if (current == stream) {
    return;
  }
  notify_observers([=](Observer &observer) {
    observer.order({device, current}, {device, stream});
  });
  if (openreg_stream_is_idle(device, current)) {
    return;
  }
  const auto event = make_event(device, false);
  check(openreg_event_record(event.get(), current));
  check(openreg_stream_wait_event(device, stream, event.get()));
}

// Queues copies on a stream.
void copy_on(c10::DeviceIndex device, int stream,
             const std::vector<std::pair<at::Tensor, at::Tensor>> &copies) {
  if (copies.empty()) {
    return;
  }
  const c10::StreamGuard guard(stream_of(device, stream));
  const at::AutoDispatchBelowAutograd no_autograd;
  for (const auto &[to, from] : copies) {
    to.copy_(from, true);
  }
}

// Fails the current stream if a tensor has a NaN.
void check_for_nan(const Tensors &tensors) {
  static const auto check = c10::Dispatcher::singleton()
                                .findSchemaOrThrow("c10d::check_for_nan", "")
                                .typed<void(const at::Tensor &)>();
  const at::AutoDispatchBelowAutograd no_autograd;
  for (const auto &tensor : tensors) {
    check.call(tensor);
  }
}

// In a dry run: returns whether a request moves no data, and sets which of its outputs are known
// then. Each rank decides by its own tensors, as all ranks usually have the same ones.
bool skip_data(c10::ArrayRef<at::Tensor> reads, c10::ArrayRef<at::Tensor> writes,
               c10::ArrayRef<std::pair<at::Tensor, at::Tensor>> copies, bool receives_nothing) {
  KernelAccesses accesses;
  for (const auto &tensor : reads) {
    accesses.read(tensor);
  }
  for (const auto &tensor : writes) {
    accesses.overwrite(tensor);
  }
  if (receives_nothing) {
    accesses.read_unknown();
  }
  for (const auto &tensor : writes) {
    accesses.mark(tensor);
  }
  for (const auto &[to, from] : copies) {
    accesses.mark(from);
  }
  return accesses.are_skipped();
}

} // namespace

ProcessGroupOccl::WorkPtr ProcessGroupOccl::submit(Request request) {
  if (request.device < 0) {
    const auto &tensors = request.inputs.empty() ? request.outputs : request.inputs;
    request.device = tensors.front().device().index();
  }
  auto stack = FlightRecorder::get().capture_stack();
  const WithoutGil no_gil;
  if (checks_nan_ && sends(request)) {
    check_for_nan(request.inputs);
  }
  const std::lock_guard lock(submit_mutex_);
  check_alive();
  const auto is_message = request.is_message();
  RECORD_PARAM_COMMS_DATA_WITH_ASYNC_OP(
      std::make_tuple(static_cast<int64_t>(next_number(is_message)), is_message),
      std::make_tuple(pg_uid_, pg_desc_), request.inputs, request.outputs, rank_,
      request.name == nullptr ? request.title.c_str() : request.name,
      count_elements(request.inputs), count_elements(request.outputs),
      dtype_of(request.inputs, request.outputs), request.input_rows, request.output_rows,
      rank_start_, rank_stride_, size_, request.is_async);
  ++call_number_;
  return is_coalescing_ ? add_coalesced(std::move(request), std::move(stack))
                        : queue(std::move(request), std::move(stack));
}

// Coalesced calls share one number.
uint64_t ProcessGroupOccl::next_number(bool is_message) const {
  const bool is_assigned =
      coalesced_ && (is_message ? !coalesced_->messages.empty() : coalesced_->has_collectives);
  return (is_message ? message_number_ : collective_number_) + (is_assigned ? 0 : 1);
}

int ProcessGroupOccl::choose_stream(Connection &connection, const Request &request) {
  int stream = OPENREG_STREAM_DEFAULT;
  if (!request.is_async) {
    check(openreg_stream_current(request.device, &stream));
    return stream;
  }
  if (!request.is_message() || request.is_coalesced) {
    return connection.stream;
  }
  const auto &message = request.messages.front();
  const auto [found, is_new] =
      connection.message_streams.try_emplace({message.peer, message.is_send}, 0);
  if (is_new) {
    const auto priority = options_->is_high_priority_stream ? -1 : 0;
    check(openreg_stream_from_pool(request.device, priority, &found->second));
  }
  return found->second;
}

// In the communicator of a pair the ranks are 0 and 1.
CommunicatorPtr ProcessGroupOccl::choose_communicator(Connection &connection, Request &request) {
  if (!request.is_message() || request.is_coalesced || is_eager_) {
    return communicator_on(request.device);
  }
  auto &peer = request.messages.front().peer;
  auto &pair = connection.pairs[peer];
  if (!pair) {
    const auto [low, high] = std::minmax(rank_, peer);
    pair = join(c10::str("pair/", low, ":", high),
                low == high ? std::vector<int>{low} : std::vector<int>{low, high}, request.device);
  }
  peer = peer > rank_ ? 1 : 0;
  return pair;
}

template <class Do>
void ProcessGroupOccl::for_each_call_order(Connection &connection, const Request &request,
                                           const Communicator *communicator, Do act) {
  if (request.has_collectives) {
    act(connection.collectives);
  }
  for (const auto &message : request.messages) {
    act(connection.messages[{communicator, message.peer, message.is_send}]);
  }
}

c10::intrusive_ptr<OcclWork> ProcessGroupOccl::make_work(const Request &request, int stream) const {
  OcclWork::WorkInfo info{};
  info.rank = rank_;
  info.type = request.type;
  info.title = c10::str(backend_name(), ":", request.title);
  info.group = pg_uid_;
  info.description = pg_desc_;
  info.is_message = request.is_message();
  info.number = info.is_message ? message_number_ : collective_number_;
  info.source = request.source;
  info.timeout = request.timeout;
  info.is_barrier = request.is_barrier;
  info.is_blocking = is_blocking_;
  info.device = request.device;
  info.stream = stream;
  // A receive has no inputs, so the profiler shows its outputs.
  const auto &shown = request.inputs.empty() && info.is_message ? request.outputs : request.inputs;
  return c10::make_intrusive<OcclWork>(std::move(info), shown, request.outputs);
}

// Whether the inputs of the request go to other ranks. A rank that receives a broadcast has its
// tensor as an input, too.
bool ProcessGroupOccl::sends(const Request &request) {
  return request.type != c10d::OpType::BROADCAST || !request.collectives.front().inputs.empty();
}

// The part of a gathered output that is this rank's own input, in the input's shape. Undefined for
// other requests.
at::Tensor ProcessGroupOccl::own_output(const Request &request) const {
  const bool is_gather =
      request.type == c10d::OpType::ALLGATHER || request.type == c10d::OpType::_ALLGATHER_BASE;
  if (!is_gather || request.is_coalesced || request.inputs.size() != 1) {
    return {};
  }
  const auto &input = request.inputs[0];
  const auto rank = static_cast<size_t>(rank_), size = static_cast<size_t>(size_);
  if (request.outputs.size() == size && request.outputs[rank].sizes() == input.sizes()) {
    return request.outputs[rank];
  }
  if (request.outputs.size() != 1 || request.outputs[0].numel() != input.numel() * size_ ||
      !request.outputs[0].is_contiguous()) {
    return {};
  }
  const at::AutoDispatchBelowADInplaceOrView without_autograd;
  return request.outputs[0]
      .view(-1)
      .narrow(0, rank_ * input.numel(), input.numel())
      .view(input.sizes());
}

ProcessGroupOccl::WorkPtr ProcessGroupOccl::queue(Request request, StackPtr stack) {
  if (!request.is_coalesced) { // coalesced ones have their number already
    ++(request.is_message() ? message_number_ : collective_number_);
  }
  if (request.timeout <= std::chrono::milliseconds::zero()) {
    request.timeout = options_->timeout;
  }
  const auto extra = ephemeral_timeout_->take();
  request.timeout += extra.time;
  if (is_dry() && skip_data(request.is_coalesced ? request.reads : request.inputs,
                            request.is_coalesced ? request.writes : request.outputs, request.copies,
                            /*receives_nothing=*/is_represented_ && !request.messages.empty()))
      [[unlikely]] {
    for (auto &collective : request.collectives) {
      collective.call.only_checks = true;
    }
    for (auto &message : request.messages) {
      message.only_checks = true;
    }
  }
  auto &connection = connection_on(request.device);
  const auto stream = choose_stream(connection, request);
  const auto communicator = choose_communicator(connection, request);
  TORCH_CHECK_WITH(DistBackendError, !communicator->memory()->is_suspended(), "ProcessGroup",
                   backend_title(), ": the group was suspended; call resume() first");
  auto operation = std::make_unique<Operation>();
  operation->communicator = communicator;
  operation->collectives = std::move(request.collectives);
  operation->messages = request.messages;
  operation->timeout_ns = to_ns(request.timeout);
  if (extra.owned > std::chrono::milliseconds::zero()) {
    operation->ephemeral_timeout = ephemeral_timeout_;
    operation->ephemeral_owned = extra.owned;
  }
  // In a graph the order is that of the capture. The flight recorder and the check for deadlocks do
  // not know when it is replayed, so captured calls skip both.
  const bool is_captured = is_capturing(request.device);
  uint64_t call = 0;
  if (!is_captured) {
    if (request.has_collectives) {
      call = communicator->note_call(request.device, !request.is_async);
    }
    operation->flight_entry = add_flight_entry(request, std::move(stack));
  }
  const auto outcome = operation->outcome;
  c10::intrusive_ptr<OcclWork> work;
  if (request.is_async || at::hasCallbacks()) {
    work = make_work(request, stream);
  }

  wait_for_current(request.device, stream);
  if (!is_captured) {
    for_each_call_order(connection, request, communicator.get(),
                        [&](const CallOrder &order) { order.enter(request.device, stream); });
  }
  SharedEvent start;
  const auto queued = std::chrono::steady_clock::now();
  if (is_timed_) {
    start = make_event(request.device, true);
    check(openreg_event_record(start.get(), stream));
  }
  notify_observers([&](Observer &observer) {
    observer.launch({request.device, stream},
                    {c10::str(backend_name(), ":", request.title),
                     request.is_coalesced ? request.reads : request.inputs,
                     request.is_coalesced ? request.writes : request.outputs, request.is_async,
                     own_output(request)});
  });
  launch_operation(request.device, stream, std::move(operation));
  copy_on(request.device, stream, request.copies);
  const SharedEvent end = make_event(request.device, is_timed_);
  record_event(end.get(), {request.device, stream});
  if (!is_captured) {
    for_each_call_order(connection, request, communicator.get(),
                        [&](CallOrder &order) { order.leave(stream, end); });
  }

  if (completion_hook_ && start && !is_captured) {
    completion_hook_->add({request.type,
                           request.is_message() ? message_number_ : collective_number_, queued,
                           start, end, outcome});
  }
  if (work) {
    Tensors used;
    if (request.is_async) { // synchronous work is on the current stream, which orders the memory
      used = std::move(request.kept);
      append(used, request.inputs);
      append(used, request.outputs);
      for (const auto &[to, from] : request.copies) {
        append(used, {to, from});
      }
    }
    work->attach(communicator, outcome, start, end, call, std::move(used));
    work->end_profiling();
  }
  return request.is_async ? work : nullptr;
}

// ---- coalescing ---------------------------------------------------------------------------------

void ProcessGroupOccl::startCoalescing() {
  const WithoutGil no_gil;
  const std::lock_guard lock(submit_mutex_);
  is_coalescing_ = true;
  coalesced_.reset();
}

ProcessGroupOccl::WorkPtr ProcessGroupOccl::add_coalesced(Request request, StackPtr stack) {
  const auto device = request.device;
  if (!coalesced_) {
    coalesced_.emplace(Request{c10d::OpType::COALESCED, "coalesced", nullptr, request.is_async});
    coalesced_->device = device;
    coalesced_->is_coalesced = true;
  }
  auto &all = *coalesced_;
  TORCH_CHECK(all.device == device, multi_device_error());
  auto &number = request.is_message() ? message_number_ : collective_number_;
  number = next_number(request.is_message());
  all.is_async = request.is_async;
  add_flight_entry(request, std::move(stack));
  all.has_collectives = all.has_collectives || request.has_collectives;
  std::move(request.collectives.begin(), request.collectives.end(),
            std::back_inserter(all.collectives));
  all.messages.insert(all.messages.end(), request.messages.begin(), request.messages.end());
  all.copies.insert(all.copies.end(), request.copies.begin(), request.copies.end());
  append(all.kept, request.kept);
  append(all.kept, request.inputs);
  append(all.kept, request.outputs);
  append(all.reads, request.inputs);
  append(all.writes, request.outputs);
  // A program waits for the Work that endCoalescing returns, not for this one.
  return request.is_async && request.has_collectives ? make_work(request, all.device) : nullptr;
}

// Returns null if there were no calls, or if they run on the current stream.
ProcessGroupOccl::WorkPtr ProcessGroupOccl::endCoalescing() {
  auto stack = FlightRecorder::get().capture_stack();
  const WithoutGil no_gil;
  const std::lock_guard lock(submit_mutex_);
  is_coalescing_ = false;
  auto request = std::exchange(coalesced_, std::nullopt);
  if (!request) {
    return nullptr;
  }
  check_alive();
  const auto is_message = !request->has_collectives;
  const auto number = is_message ? message_number_ : collective_number_;
  RECORD_PARAM_COMMS_DATA_WITH_ASYNC_OP(
      std::make_tuple(static_cast<int64_t>(number), is_message), std::make_tuple(pg_uid_, pg_desc_),
      request->reads, request->writes, rank_, "coalesced", count_elements(request->reads),
      count_elements(request->writes), dtype_of(request->reads, request->writes),
      request->input_rows, request->output_rows, rank_start_, rank_stride_, size_,
      request->is_async);
  return queue(std::move(*request), std::move(stack));
}

} // namespace openreg
