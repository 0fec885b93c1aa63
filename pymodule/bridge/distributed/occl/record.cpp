// What the flight recorder is told of a group's calls: as NCCL's group would have done them.

#include "distributed/occl/occl.h"

namespace openreg {

namespace {

bool have_one_size(const Tensors &tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const auto &each) { return each.sizes() == tensors.front().sizes(); });
}

} // namespace

// Its description is told to a group after it was made.
const std::shared_ptr<RecordedGroup> &Occl::recorded_group() {
  if (recorded_ == nullptr || recorded_->description != pg_desc_) {
    recorded_ = std::make_shared<RecordedGroup>(id_, pg_uid_, pg_desc_);
  }
  return recorded_;
}

RecordedCall Occl::describe(const Request &request, std::string title, Frames frames) {
  RecordedCall call;
  call.group = recorded_group();
  call.title = std::move(title);
  call.is_message = request.is_message();
  call.collective_number = collective_number_;
  call.message_number = message_number_;
  call.call_number = call_number_;
  call.timeout =
      request.timeout > std::chrono::milliseconds::zero() ? request.timeout : options_->timeout;
  call.frames = std::move(frames);
  call.is_timed = times_;
  return call;
}

// With `submitting_` held. Returns the one that the operation shall note in.
RecordPtr Occl::record(const Request &request, Frames frames) {
  auto &recorder = FlightRecorder::get();
  if (!recorder.is_on()) {
    return nullptr;
  }
  if (!is_coalescing_) {
    recorded_group()->queued =
        static_cast<int64_t>(request.is_message() ? message_number_ : collective_number_);
  }
  const auto add = [&](std::string title, RecordedTensors inputs, RecordedTensors outputs) {
    auto call = describe(request, std::move(title), frames);
    call.inputs = std::move(inputs);
    call.outputs = std::move(outputs);
    return recorder.add(std::move(call));
  };
  const auto &inputs = request.inputs, &outputs = request.outputs;
  // Parts that differ NCCL does one after the other.
  if (request.type == c10d::OpType::ALLGATHER && !have_one_size(outputs)) {
    for (int rank = 0; rank < size_; ++rank) {
      add("_broadcast_oop", recorded({rank == rank_ ? inputs[0] : outputs[rank]}),
          recorded({outputs[rank]}));
    }
    return add("ALLGATHER_coalesced", {}, {});
  }
  if (request.type == c10d::OpType::REDUCE_SCATTER && !have_one_size(inputs)) {
    for (int rank = 0; rank < size_; ++rank) {
      add("_reduce_oop", recorded({inputs[rank]}),
          recorded({rank == rank_ ? outputs[0] : inputs[rank]}));
    }
    return add("REDUCE_SCATTER_coalesced", {}, {});
  }
  if (request.is_barrier) { // an all_reduce of one number
    const RecordedTensor number{{1}, at::kFloat};
    return add(request.title, {number}, {number});
  }
  if (request.is_message() && !request.is_coalesced) {
    const auto tensor = recorded(inputs.empty() ? outputs : inputs);
    return add(request.title, tensor, tensor);
  }
  return add(request.title, recorded(inputs), recorded(outputs));
}

} // namespace openreg
