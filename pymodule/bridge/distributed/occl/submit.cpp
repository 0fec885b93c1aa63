// The way of a request into a stream.

#include "distributed/occl/occl.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

#include "launch/policy.h"
#include "streams/inline_guard.h"

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

// What is queued on `stream` from now on shall come behind what the current stream has to do.
void wait_for_current(c10::DeviceIndex device, int stream) {
  int current = OPENREG_STREAM_DEFAULT;
  check(openreg_stream_current(device, &current));
  if (current == stream) {
    return;
  }
  tell_watcher([=](Watcher &watcher) { watcher.order({device, current}, {device, stream}); });
  if (openreg_stream_is_idle(device, current)) {
    return;
  }
  const auto event = make_event(device, false);
  check(openreg_event_record(event.get(), current));
  check(openreg_stream_wait_event(device, stream, event.get()));
}

// On a stream, behind what was queued there.
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

} // namespace

Occl::WorkPtr Occl::submit(Request request) {
  if (request.device < 0) {
    const auto &tensors = request.inputs.empty() ? request.outputs : request.inputs;
    request.device = tensors.front().device().index();
  }
  auto frames = FlightRecorder::get().look_where();
  const WithoutGil no_gil;
  const std::lock_guard lock(submitting_);
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
  return is_coalescing_ ? add_coalesced(std::move(request), std::move(frames))
                        : queue(std::move(request), std::move(frames));
}

// What is queued together has one number.
uint64_t Occl::next_number(bool is_message) const {
  const bool has_it =
      coalesced_ && (is_message ? !coalesced_->messages.empty() : coalesced_->has_collectives);
  return (is_message ? message_number_ : collective_number_) + (has_it ? 0 : 1);
}

int Occl::choose_stream(Connection &connection, const Request &request) {
  int stream = OPENREG_STREAM_DEFAULT;
  if (!request.is_async) {
    check(openreg_stream_current(request.device, &stream));
    return stream;
  }
  if (!request.is_message() || request.is_coalesced) {
    return connection.stream;
  }
  const auto &message = request.messages.front();
  const auto [lane, is_new] = connection.lanes.try_emplace({message.peer, message.is_send}, 0);
  if (is_new) {
    const auto priority = options_->is_high_priority_stream ? -1 : 0;
    check(openreg_stream_from_pool(request.device, priority, &lane->second));
  }
  return lane->second;
}

// Within the communicator of a pair its ranks are 0 and 1.
CommunicatorPtr Occl::choose_communicator(Connection &connection, Request &request) {
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
void Occl::for_each_order(Connection &connection, const Request &request,
                          const Communicator *communicator, Do act) {
  if (request.has_collectives) {
    act(connection.collectives);
  }
  for (const auto &message : request.messages) {
    act(connection.messages[{communicator, message.peer, message.is_send}]);
  }
}

c10::intrusive_ptr<OcclWork> Occl::make_work(const Request &request, int stream) const {
  OcclWork::Facts facts{};
  facts.rank = rank_;
  facts.type = request.type;
  facts.title = c10::str(backend_name(), ":", request.title);
  facts.group = pg_uid_;
  facts.description = pg_desc_;
  facts.is_message = request.is_message();
  facts.number = facts.is_message ? message_number_ : collective_number_;
  facts.source = request.source;
  facts.timeout = request.timeout;
  facts.is_barrier = request.is_barrier;
  facts.blocks = blocks_;
  facts.device = request.device;
  facts.stream = stream;
  // What is received is all that a profiler can be shown of it.
  const auto &shown = request.inputs.empty() && facts.is_message ? request.outputs : request.inputs;
  return c10::make_intrusive<OcclWork>(std::move(facts), shown, request.outputs);
}

// Where a rank's own input lies in what is gathered, in the input's shape.
at::Tensor Occl::own_part(const Request &request) const {
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

Occl::WorkPtr Occl::queue(Request request, Frames frames) {
  if (!request.is_coalesced) { // else it has its number
    ++(request.is_message() ? message_number_ : collective_number_);
  }
  if (request.timeout <= std::chrono::milliseconds::zero()) {
    request.timeout = options_->timeout;
  }
  const auto extra = extra_time_->take();
  request.timeout += extra.time;
  auto &connection = connection_on(request.device);
  const auto stream = choose_stream(connection, request);
  const auto communicator = choose_communicator(connection, request);
  auto operation = std::make_unique<Operation>();
  operation->communicator = communicator;
  operation->collectives = std::move(request.collectives);
  operation->messages = request.messages;
  operation->timeout_ns = in_ns(request.timeout);
  if (extra.owned > std::chrono::milliseconds::zero()) {
    operation->extra_time = extra_time_;
    operation->extra_time_owned = extra.owned;
  }
  // In a graph the order is that of the capture, and neither the flight recorder nor who looks for
  // ranks that wait for themselves knows when it is replayed.
  const bool is_captured = is_capturing(request.device);
  uint64_t call = 0;
  if (!is_captured) {
    if (request.has_collectives) {
      call = communicator->call(request.device, !request.is_async);
    }
    operation->record = record(request, std::move(frames));
  }
  const auto outcome = operation->outcome;
  c10::intrusive_ptr<OcclWork> work;
  if (request.is_async || at::hasCallbacks()) {
    work = make_work(request, stream);
  }

  wait_for_current(request.device, stream);
  if (!is_captured) {
    for_each_order(connection, request, communicator.get(),
                   [&](const Order &order) { order.enter(request.device, stream); });
  }
  SharedEvent start;
  if (times_) {
    start = make_event(request.device, true);
    check(openreg_event_record(start.get(), stream));
  }
  tell_watcher([&](Watcher &watcher) {
    watcher.launch({request.device, stream},
                   {c10::str(backend_name(), ":", request.title),
                    request.is_coalesced ? request.reads : request.inputs,
                    request.is_coalesced ? request.writes : request.outputs, request.is_async,
                    own_part(request)});
  });
  launch(request.device, stream, std::move(operation));
  copy_on(request.device, stream, request.copies);
  const SharedEvent end = make_event(request.device, times_);
  record_event(end.get(), {request.device, stream});
  if (!is_captured) {
    for_each_order(connection, request, communicator.get(),
                   [&](Order &order) { order.leave(stream, end); });
  }

  if (work) {
    Tensors used;
    if (request.is_async) { // else they are the current stream's, as all that it works on
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

// ---- several at once ----------------------------------------------------------------------------

void Occl::startCoalescing() {
  const WithoutGil no_gil;
  const std::lock_guard lock(submitting_);
  is_coalescing_ = true;
  coalesced_.reset();
}

Occl::WorkPtr Occl::add_coalesced(Request request, Frames frames) {
  const auto device = request.device;
  if (!coalesced_) {
    coalesced_.emplace(Request{c10d::OpType::COALESCED, "coalesced", nullptr, request.is_async});
    coalesced_->device = device;
    coalesced_->is_coalesced = true;
  }
  auto &all = *coalesced_;
  TORCH_CHECK(all.device == device, multi_device_sentence());
  auto &number = request.is_message() ? message_number_ : collective_number_;
  number = next_number(request.is_message());
  all.is_async = request.is_async;
  record(request, std::move(frames));
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
  // Not what there is to wait for, which endCoalescing returns.
  return request.is_async && request.has_collectives ? make_work(request, all.device) : nullptr;
}

// None if there was nothing, or if it was queued on the current stream.
Occl::WorkPtr Occl::endCoalescing() {
  auto frames = FlightRecorder::get().look_where();
  const WithoutGil no_gil;
  const std::lock_guard lock(submitting_);
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
  return queue(std::move(*request), std::move(frames));
}

} // namespace openreg
