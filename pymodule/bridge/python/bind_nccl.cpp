#include "python/bind_nccl.h"

#include <array>
#include <cstring>

#include "distributed/arguments.h"
#include "distributed/communicator.h"
#include "distributed/operation.h"
#include "streams/inline_guard.h"

namespace py = pybind11;

namespace openreg {

namespace {

// As long as NCCL's. The first bytes are ours.
constexpr size_t kIdBytes = 128;

// A communicator, and which of its collectives come after which.
struct Member {
  CommunicatorPtr communicator;
  c10::DeviceIndex device;
  Order order{};
};

py::bytes make_id(int size) {
  openreg_comm_id id{};
  check(openreg_comm_id_create(size, &id));
  std::array<char, kIdBytes> bytes{};
  std::memcpy(bytes.data(), id.bytes, sizeof id.bytes);
  return {bytes.data(), bytes.size()};
}

Member join(int size, const std::string &bytes, int rank, c10::DeviceIndex device) {
  TORCH_CHECK(bytes.size() == kIdBytes, "expected an id of ", kIdBytes, " bytes, but got ",
              bytes.size());
  openreg_comm_id id{};
  std::memcpy(id.bytes, bytes.data(), sizeof id.bytes);
  Connecting how{};
  how.size = size;
  how.rank = rank;
  how.device = device;
  how.timeout = std::chrono::minutes(10); // as a group's by default
  const WithoutGil no_gil;
  return {connect(id, how), device};
}

std::vector<Member> join_all(const std::vector<int> &devices) {
  const WithoutGil no_gil;
  auto communicators = connect_all(devices);
  std::vector<Member> members;
  for (size_t i = 0; i < devices.size(); ++i) {
    members.push_back({std::move(communicators[i]), static_cast<c10::DeviceIndex>(devices[i])});
  }
  return members;
}

c10d::ReduceOp reduction_by_number(int number) {
  static constexpr c10d::ReduceOp::RedOpType kOperations[] = {
      c10d::ReduceOp::SUM, c10d::ReduceOp::PRODUCT, c10d::ReduceOp::MAX, c10d::ReduceOp::MIN,
      c10d::ReduceOp::AVG};
  constexpr int count = std::size(kOperations);
  TORCH_CHECK(0 <= number && number < count, "op must be one of 0 to ", count - 1, ", but got ",
              number);
  return kOperations[number];
}

// One rank's side. `input` and `output`: none where the kind has none on this rank.
Collective side_of(openreg_collective_kind kind, const std::optional<at::Tensor> &input,
                   const std::optional<at::Tensor> &output, int op, int root) {
  const auto &any = input ? *input : output.value();
  Collective side;
  side.call.kind = kind;
  side.call.root = root;
  const bool reduces = kind == OPENREG_COLLECTIVE_ALL_REDUCE || kind == OPENREG_COLLECTIVE_REDUCE ||
                       kind == OPENREG_COLLECTIVE_REDUCE_SCATTER;
  side.call.dtype = dtype_of(any);
  if (reduces) {
    Tensors kept; // which only factors need
    set_reduction(side, openreg_collective_name(kind), any, reduction_by_number(op), false, kept);
  }
  if (input) {
    side.inputs.push_back(input_of(*input));
  }
  if (output) {
    side.outputs.push_back(output_of(*output));
  }
  return side;
}

// Queues a collective, the side of each member on a stream of its device.
void collect(openreg_collective_kind kind, const std::vector<Member *> &members,
             const std::vector<std::optional<at::Tensor>> &inputs,
             const std::vector<std::optional<at::Tensor>> &outputs, int op, int root,
             const std::vector<int> &streams) {
  std::vector<std::unique_ptr<Operation>> operations;
  for (size_t i = 0; i < members.size(); ++i) {
    auto &operation = operations.emplace_back(std::make_unique<Operation>());
    operation->communicator = members[i]->communicator;
    operation->collectives.push_back(side_of(kind, inputs[i], outputs[i], op, root));
  }
  const WithoutGil no_gil;
  for (size_t i = 0; i < members.size(); ++i) {
    const auto device = members[i]->device;
    members[i]->order.enter(device, streams[i]);
    tell_watcher([&](Watcher &watcher) {
      Tensors reads, writes;
      if (inputs[i]) {
        reads.push_back(*inputs[i]);
      }
      if (outputs[i]) {
        writes.push_back(*outputs[i]);
      }
      watcher.launch({device, streams[i]},
                     {c10::str("nccl:", openreg_collective_name(kind)), reads, writes, false});
    });
    launch(device, streams[i], std::move(operations[i]));
    const SharedEvent end = make_event(device, false);
    record_event(end.get(), {device, streams[i]});
    members[i]->order.leave(streams[i], end);
  }
}

} // namespace

void define_nccl(py::module &module) {
  auto nccl = module.def_submodule("_nccl");
  py::class_<Member>(nccl, "Communicator").def_readonly("device", &Member::device);
  py::enum_<openreg_collective_kind> kinds(nccl, "Kind");
#define X(name, text) kinds.value(#name, OPENREG_COLLECTIVE_##name);
  OPENREG_COLLECTIVE_LIST(X)
#undef X
  nccl.def("make_id", &make_id, py::arg("size"));
  nccl.def("join", &join, py::arg("size"), py::arg("id"), py::arg("rank"), py::arg("device"));
  nccl.def("join_all", &join_all, py::arg("devices"));
  nccl.def("collect", &collect, py::arg("kind"), py::arg("communicators"), py::arg("inputs"),
           py::arg("outputs"), py::arg("op"), py::arg("root"), py::arg("streams"));
}

} // namespace openreg
