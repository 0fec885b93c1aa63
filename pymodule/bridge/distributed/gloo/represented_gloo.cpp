#include "distributed/gloo/represented_gloo.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>

#include "compat/symbol_versions.h" // std::condition_variable::wait in c10::ivalue::Future

namespace openreg {

namespace {

using Tensors = RepresentedGloo::Tensors;

// Finished work with these results.
RepresentedGloo::WorkPtr done(const Tensors &results) {
  auto future =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  future->markCompleted(at::IValue(results));
  return c10d::Work::create_from_future(future);
}

void copy_all(const at::Tensor &to, const at::Tensor &from) {
  const at::AutoDispatchBelowAutograd guard; // as a backend that writes to memory
  to.copy_(from.reshape_as(to));
}

// Copies as many elements as both have.
void copy_part(const at::Tensor &to, const at::Tensor &from) {
  const at::AutoDispatchBelowAutograd guard;
  const auto count = std::min(to.numel(), from.numel());
  to.view(-1).narrow(0, 0, count).copy_(from.reshape(-1).narrow(0, 0, count));
}

// The rows of a tensor that belong to a rank: as many as `counts` says, or an equal share.
at::Tensor part_of(const at::Tensor &tensor, const std::vector<int64_t> &counts, int rank,
                   int size) {
  if (counts.empty()) {
    const auto share = tensor.size(0) / size;
    return tensor.narrow(0, rank * share, share);
  }
  int64_t begin = 0;
  for (int i = 0; i < rank; ++i) {
    begin += counts[i];
  }
  return tensor.narrow(0, begin, counts[rank]);
}

} // namespace

// What a tensor becomes if all ranks reduce the same one.
void RepresentedGloo::reduce_equal(const at::Tensor &tensor,
                                   const c10d::ReduceOp &operation) const {
  TORCH_CHECK_VALUE(operation.op_ != c10d::ReduceOp::PREMUL_SUM,
                    "Cannot use ReduceOp.PREMUL_SUM with Gloo");
  if (tensor.scalar_type() == at::kBool) { // a sum is "or", a product is "and"
    return;
  }
  const at::AutoDispatchBelowAutograd guard;
  switch (operation.op_) {
  case c10d::ReduceOp::SUM:
    tensor.mul_(size_);
    break;
  case c10d::ReduceOp::PRODUCT:
    tensor.pow_(size_);
    break;
  case c10d::ReduceOp::BXOR:
    tensor.mul_(size_ % 2);
    break;
  default: // an average, a minimum, a maximum, "and", "or"
    break;
  }
}

void RepresentedGloo::gather_equal(const at::Tensor &output, const at::Tensor &input) const {
  const auto parts = output.view({size_, -1});
  for (int rank = 0; rank < size_; ++rank) {
    copy_all(parts[rank], input);
  }
}

RepresentedGloo::WorkPtr RepresentedGloo::broadcast(Tensors &tensors,
                                                    const c10d::BroadcastOptions &) {
  return done(tensors);
}

RepresentedGloo::WorkPtr RepresentedGloo::allreduce(Tensors &tensors,
                                                    const c10d::AllreduceOptions &options) {
  for (const auto &tensor : tensors) {
    reduce_equal(tensor, options.reduceOp);
  }
  return done(tensors);
}

RepresentedGloo::WorkPtr
RepresentedGloo::allreduce_coalesced(Tensors &tensors,
                                     const c10d::AllreduceCoalescedOptions &options) {
  return allreduce(tensors, options);
}

RepresentedGloo::WorkPtr RepresentedGloo::reduce(Tensors &tensors,
                                                 const c10d::ReduceOptions &options) {
  for (const auto &tensor : tensors) {
    reduce_equal(tensor, options.reduceOp);
  }
  return done(tensors);
}

RepresentedGloo::WorkPtr RepresentedGloo::allgather(TensorLists &outputs, Tensors &inputs,
                                                    const c10d::AllgatherOptions &) {
  for (const auto &output : outputs.at(0)) {
    copy_all(output, inputs.at(0));
  }
  return done(outputs[0]);
}

RepresentedGloo::WorkPtr RepresentedGloo::_allgather_base(at::Tensor &output, at::Tensor &input,
                                                          const c10d::AllgatherOptions &) {
  gather_equal(output, input);
  return done({output});
}

RepresentedGloo::WorkPtr RepresentedGloo::allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                                              const c10d::AllgatherOptions &) {
  Tensors all;
  for (const auto &list : outputs) {
    for (size_t i = 0; i < list.size(); ++i) {
      copy_all(list[i], inputs.at(i));
      all.push_back(list[i]);
    }
  }
  return done(all);
}

RepresentedGloo::WorkPtr
RepresentedGloo::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                 const c10d::AllgatherOptions &) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    gather_equal(outputs[i], inputs.at(i));
  }
  return done(outputs);
}

RepresentedGloo::WorkPtr RepresentedGloo::gather(TensorLists &outputs, Tensors &inputs,
                                                 const c10d::GatherOptions &options) {
  if (rank_ != options.rootRank) {
    return done({});
  }
  for (const auto &output : outputs.at(0)) {
    copy_all(output, inputs.at(0));
  }
  return done(outputs[0]);
}

RepresentedGloo::WorkPtr RepresentedGloo::scatter(Tensors &outputs, TensorLists &inputs,
                                                  const c10d::ScatterOptions &options) {
  if (rank_ == options.rootRank) {
    copy_all(outputs.at(0), inputs.at(0).at(rank_));
  } else {
    outputs.at(0).zero_(); // nobody knows what the root would send
  }
  return done(outputs);
}

RepresentedGloo::WorkPtr
RepresentedGloo::reduce_scatter(Tensors &outputs, TensorLists &inputs,
                                const c10d::ReduceScatterOptions &options) {
  copy_all(outputs.at(0), inputs.at(0).at(rank_));
  reduce_equal(outputs[0], options.reduceOp);
  return done(outputs);
}

RepresentedGloo::WorkPtr
RepresentedGloo::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                      const c10d::ReduceScatterOptions &options) {
  copy_all(output, input.view({size_, -1})[rank_]);
  reduce_equal(output, options.reduceOp);
  return done({output});
}

RepresentedGloo::WorkPtr
RepresentedGloo::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                 const c10d::ReduceScatterOptions &options) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    _reduce_scatter_base(outputs[i], inputs.at(i), options);
  }
  return done(outputs);
}

RepresentedGloo::WorkPtr RepresentedGloo::alltoall_base(at::Tensor &output, at::Tensor &input,
                                                        std::vector<int64_t> &output_counts,
                                                        std::vector<int64_t> &input_counts,
                                                        const c10d::AllToAllOptions &) {
  for (int rank = 0; rank < size_; ++rank) {
    copy_part(part_of(output, output_counts, rank, size_),
              part_of(input, input_counts, rank_, size_));
  }
  return done({output});
}

RepresentedGloo::WorkPtr RepresentedGloo::alltoall(Tensors &outputs, Tensors &inputs,
                                                   const c10d::AllToAllOptions &) {
  for (const auto &output : outputs) {
    copy_part(output, inputs.at(rank_));
  }
  return done(outputs);
}

RepresentedGloo::WorkPtr RepresentedGloo::send(Tensors &, int, int) {
  return done({});
}

RepresentedGloo::WorkPtr RepresentedGloo::recv(Tensors &tensors, int, int) {
  for (const auto &tensor : tensors) {
    tensor.zero_();
  }
  return done(tensors);
}

RepresentedGloo::WorkPtr RepresentedGloo::recvAnysource(Tensors &tensors, int tag) {
  return recv(tensors, 0, tag);
}

RepresentedGloo::WorkPtr RepresentedGloo::barrier(const c10d::BarrierOptions &) {
  return done({});
}

} // namespace openreg
