#include "distributed/occl/occl.h"

namespace openreg {

// Always work of the group's own streams.
Occl::WorkPtr Occl::send(Tensors &tensors, int rank, int /*tag*/) {
  const auto &tensor = only_tensor(tensors);
  check_tensor(tensor, true);
  check_rank("send", rank, size_);
  const auto title = c10::str("send ", rank_, "->", rank);
  Request request{c10d::OpType::SEND, title, "send", true, kUnset, tensors, {}};
  request.messages.push_back({true, rank, dtype_of(tensor), input_of(tensor)});
  return submit(std::move(request));
}

Occl::WorkPtr Occl::recv(Tensors &tensors, int rank, int /*tag*/) {
  const auto &tensor = only_tensor(tensors);
  check_tensor(tensor, true);
  check_rank("recv", rank, size_);
  const auto title = c10::str("recv ", rank_, "<-", rank);
  Request request{c10d::OpType::RECV, title, "recv", true, kUnset, {}, tensors};
  request.messages.push_back({false, rank, dtype_of(tensor), output_of(tensor)});
  request.source = rank;
  return submit(std::move(request));
}

Occl::WorkPtr Occl::recvAnysource(Tensors &, int) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "ProcessGroup", backend_title(),
                              " does not support recvAnysource");
}

} // namespace openreg
