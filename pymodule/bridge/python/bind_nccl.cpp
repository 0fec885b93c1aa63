#include "python/bind.h"

#include <array>
#include <cstring>

#include "distributed/arguments.h"
#include "distributed/communicator.h"
#include "distributed/operation.h"
#include "streams/inline_guard.h"

namespace py = pybind11;

namespace openreg {

namespace {

// The length of an ncclUniqueId. The first bytes hold our id.
constexpr size_t kIdBytes = 128;

// A communicator, and the order of its collectives.
struct Member {
  CommunicatorPtr communicator;
  c10::DeviceIndex device;
  CallOrder order{};
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
  ConnectOptions settings{};
  settings.size = size;
  settings.rank = rank;
  settings.device = device;
  settings.timeout = std::chrono::minutes(10); // the default of a process group
  const WithoutGil no_gil;
  return {connect(id, settings), device};
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

// One rank's arguments. `input` and `output` are empty where the collective has none on this rank.
CollectiveArguments make_arguments(openreg_collective_kind kind,
                                   const std::optional<at::Tensor> &input,
                                   const std::optional<at::Tensor> &output, int op, int root) {
  const auto &any = input ? *input : output.value();
  CollectiveArguments arguments;
  arguments.call.kind = kind;
  arguments.call.root = root;
  arguments.call.dtype = dtype_of(any);
  if (openreg_collective_traits_of(kind)->reduces) {
    Tensors kept; // stays empty: only a factor needs memory
    set_reduction(arguments, openreg_collective_name(kind), any, reduction_by_number(op), false,
                  kept);
  }
  if (input) {
    arguments.inputs.push_back(input_buffer(*input));
  }
  if (output) {
    arguments.outputs.push_back(output_buffer(*output));
  }
  return arguments;
}

// Queues a collective for each member, on a stream of its device.
void collect(openreg_collective_kind kind, const std::vector<Member *> &members,
             const std::vector<std::optional<at::Tensor>> &inputs,
             const std::vector<std::optional<at::Tensor>> &outputs, int op, int root,
             const std::vector<int> &streams) {
  std::vector<std::unique_ptr<Operation>> operations;
  for (size_t i = 0; i < members.size(); ++i) {
    auto &operation = operations.emplace_back(std::make_unique<Operation>());
    operation->communicator = members[i]->communicator;
    operation->collectives.push_back(make_arguments(kind, inputs[i], outputs[i], op, root));
  }
  const WithoutGil no_gil;
  for (size_t i = 0; i < members.size(); ++i) {
    const auto device = members[i]->device;
    members[i]->order.enter(device, streams[i]);
    notify_observers([&](Observer &observer) {
      Tensors reads, writes;
      if (inputs[i]) {
        reads.push_back(*inputs[i]);
      }
      if (outputs[i]) {
        writes.push_back(*outputs[i]);
      }
      observer.launch({device, streams[i]},
                      {c10::str("nccl:", openreg_collective_name(kind)), reads, writes, false});
    });
    launch_operation(device, streams[i], std::move(operations[i]));
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
#define X(name, ...) kinds.value(#name, OPENREG_COLLECTIVE_##name);
  OPENREG_COLLECTIVE_LIST(X)
#undef X
  nccl.def("make_id", &make_id, py::arg("size"));
  nccl.def("join", &join, py::arg("size"), py::arg("id"), py::arg("rank"), py::arg("device"));
  nccl.def("join_all", &join_all, py::arg("devices"));
  nccl.def("collect", &collect, py::arg("kind"), py::arg("communicators"), py::arg("inputs"),
           py::arg("outputs"), py::arg("op"), py::arg("root"), py::arg("streams"));
}

} // namespace openreg
