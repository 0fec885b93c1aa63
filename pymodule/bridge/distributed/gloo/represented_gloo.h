// The backend "gloo" of a rank that stands for all ranks of its group in a dry run. There is nobody
// to talk to: each other rank counts as passing the same to a collective, and a message from
// another rank is zeros. Works on tensors of the CPU and of devices, and is done when a call
// returns.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace openreg {

class RepresentedGloo final : public c10d::Backend {
public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;

  RepresentedGloo(int rank, int size) : Backend(rank, size) {}

  const std::string getBackendName() const override { return "gloo"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return 0; }

  WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) override;
  WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override;
  WorkPtr allreduce_coalesced(Tensors &tensors,
                              const c10d::AllreduceCoalescedOptions &options) override;
  WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &options) override;
  WorkPtr allgather(TensorLists &outputs, Tensors &inputs,
                    const c10d::AllgatherOptions &options) override;
  WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input,
                          const c10d::AllgatherOptions &options) override;
  WorkPtr allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                              const c10d::AllgatherOptions &options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                          const c10d::AllgatherOptions &options) override;
  WorkPtr gather(TensorLists &outputs, Tensors &inputs,
                 const c10d::GatherOptions &options) override;
  WorkPtr scatter(Tensors &outputs, TensorLists &inputs,
                  const c10d::ScatterOptions &options) override;
  WorkPtr reduce_scatter(Tensors &outputs, TensorLists &inputs,
                         const c10d::ReduceScatterOptions &options) override;
  WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                               const c10d::ReduceScatterOptions &options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                          const c10d::ReduceScatterOptions &options) override;
  WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_counts,
                        std::vector<int64_t> &input_counts,
                        const c10d::AllToAllOptions &options) override;
  WorkPtr alltoall(Tensors &outputs, Tensors &inputs,
                   const c10d::AllToAllOptions &options) override;

  WorkPtr send(Tensors &tensors, int rank, int tag) override;
  WorkPtr recv(Tensors &tensors, int rank, int tag) override;
  WorkPtr recvAnysource(Tensors &tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions &options) override;
  void monitoredBarrier(const c10d::BarrierOptions &, bool) override {}

private:
  void reduce_equal(const at::Tensor &tensor, const c10d::ReduceOp &operation) const;
  void gather_equal(const at::Tensor &output, const at::Tensor &input) const;

  c10::intrusive_ptr<Options> options_ = c10::make_intrusive<Options>("gloo");
};

} // namespace openreg
