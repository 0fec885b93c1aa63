// Sends and receives of ProcessGroupOccl.

#include "distributed/occl/process_group_occl.h"

namespace openreg {

// Messages always run on the group's streams.
ProcessGroupOccl::WorkPtr ProcessGroupOccl::send(Tensors &tensors, int rank, int /*tag*/) {
  const auto &tensor = single_tensor(tensors);
  check_tensor(tensor, true);
  check_rank("send", rank, size_);
  const auto title = c10::str("send ", rank_, "->", rank);
  Request request{c10d::OpType::SEND, title, "send", true, kUnset, tensors, {}};
  request.messages.push_back({true, rank, dtype_of(tensor), input_buffer(tensor), false});
  return submit(std::move(request));
}

ProcessGroupOccl::WorkPtr ProcessGroupOccl::recv(Tensors &tensors, int rank, int /*tag*/) {
  const auto &tensor = single_tensor(tensors);
  check_tensor(tensor, true);
  check_rank("recv", rank, size_);
  const auto title = c10::str("recv ", rank_, "<-", rank);
  Request request{c10d::OpType::RECV, title, "recv", true, kUnset, {}, tensors};
  request.messages.push_back({false, rank, dtype_of(tensor), output_buffer(tensor), false});
  request.source = rank;
  return submit(std::move(request));
}

ProcessGroupOccl::WorkPtr ProcessGroupOccl::recvAnysource(Tensors &, int) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "ProcessGroup", backend_title(),
                              " does not support recvAnysource");
}

} // namespace openreg
