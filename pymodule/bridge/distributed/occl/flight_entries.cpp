// Records a group's calls in the flight recorder, as ProcessGroupNCCL would have run them.

#include "distributed/occl/process_group_occl.h"

namespace openreg {

namespace {

bool have_equal_sizes(const Tensors &tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const auto &each) { return each.sizes() == tensors.front().sizes(); });
}

} // namespace

// PyTorch sets the description of a group after it has created the group.
const std::shared_ptr<FlightGroup> &ProcessGroupOccl::flight_group() {
  if (flight_group_ == nullptr || flight_group_->description != pg_desc_) {
    flight_group_ = std::make_shared<FlightGroup>(id_, pg_uid_, pg_desc_);
  }
  return flight_group_;
}

FlightCall ProcessGroupOccl::describe(const Request &request, std::string title, StackPtr stack) {
  FlightCall call;
  call.group = flight_group();
  call.title = std::move(title);
  call.is_message = request.is_message();
  call.collective_number = collective_number_;
  call.message_number = message_number_;
  call.call_number = call_number_;
  call.timeout =
      request.timeout > std::chrono::milliseconds::zero() ? request.timeout : options_->timeout;
  call.stack = std::move(stack);
  call.is_timed = is_timed_;
  return call;
}

// With `submit_mutex_` held. Returns the entry in which the operation records its progress.
FlightEntryPtr ProcessGroupOccl::add_flight_entry(const Request &request, StackPtr stack) {
  auto &recorder = FlightRecorder::get();
  if (!recorder.is_on()) {
    return nullptr;
  }
  if (!is_coalescing_) {
    flight_group()->queued =
        static_cast<int64_t>(request.is_message() ? message_number_ : collective_number_);
  }
  const auto add = [&](std::string title, FlightTensors inputs, FlightTensors outputs) {
    auto call = describe(request, std::move(title), stack);
    call.inputs = std::move(inputs);
    call.outputs = std::move(outputs);
    return recorder.add(std::move(call));
  };
  const auto &inputs = request.inputs, &outputs = request.outputs;
  // With tensors of different sizes NCCL runs one operation for each rank.
  if (request.type == c10d::OpType::ALLGATHER && !have_equal_sizes(outputs)) {
    for (int rank = 0; rank < size_; ++rank) {
      add("_broadcast_oop", flight_tensors({rank == rank_ ? inputs[0] : outputs[rank]}),
          flight_tensors({outputs[rank]}));
    }
    return add("ALLGATHER_coalesced", {}, {});
  }
  if (request.type == c10d::OpType::REDUCE_SCATTER && !have_equal_sizes(inputs)) {
    for (int rank = 0; rank < size_; ++rank) {
      add("_reduce_oop", flight_tensors({inputs[rank]}),
          flight_tensors({rank == rank_ ? outputs[0] : inputs[rank]}));
    }
    return add("REDUCE_SCATTER_coalesced", {}, {});
  }
  if (request.is_barrier) { // NCCL runs an all_reduce of one number
    const FlightTensor number{{1}, at::kFloat};
    return add(request.title, {number}, {number});
  }
  if (request.is_message() && !request.is_coalesced) {
    const auto tensor = flight_tensors(inputs.empty() ? outputs : inputs);
    return add(request.title, tensor, tensor);
  }
  return add(request.title, flight_tensors(inputs), flight_tensors(outputs));
}

} // namespace openreg
