// The Work object of a ProcessGroupOccl: a position on a stream.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "distributed/operation.h"
#include "distributed/staging.h"

namespace openreg {

class OcclWork final : public c10d::Work {
public:
  struct WorkInfo {
    int rank;
    c10d::OpType type;
    std::string title;
    std::string group, description; // for the profiler
    uint64_t number;
    bool is_message;
    int source; // the sender of a received message; otherwise -1
    std::chrono::milliseconds timeout;
    bool is_barrier;
    bool is_blocking; // wait() blocks the host
    c10::DeviceIndex device;
    int stream;
  };

  OcclWork(WorkInfo facts, const std::optional<Tensors> &inputs, Tensors outputs);
  ~OcclWork() override;

  // Connects this object with the queued work: its events, and the tensors that it uses, which this
  // object keeps alive until the work has been waited for. Without this call the work counts as
  // done.
  void attach(CommunicatorPtr communicator, std::shared_ptr<Outcome> outcome, SharedEvent start,
              SharedEvent end, uint64_t call, Tensors used);
  // Ends the profiler's event of the call.
  void end_profiling();

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return outputs_; }

  // Makes the current stream wait. The host waits only for a barrier, in blocking mode, or with a
  // timeout.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  void blockCurrentStream() override { synchronize(); }
  void abort() override;

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  // A future for the number of a c10d::WorkResult; it completes when the work has ended.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  float getDuration() const override;
  uint64_t getSequencenumber() const override { return info_.number; }
  // Overrides a function of Work since 2.14.
  std::chrono::milliseconds getTimeout() const { return info_.timeout; }

private:
  bool is_done() const;
  void raise_failure() const;
  void wait_on_host(std::chrono::milliseconds timeout);

  WorkInfo info_;
  Tensors outputs_;
  CommunicatorPtr communicator_;
  std::shared_ptr<Outcome> outcome_;
  SharedEvent start_, end_;
  uint64_t call_ = 0; // from Communicator::note_call()

  std::mutex mutex_of_used_;
  Tensors used_;

  std::mutex mutex_of_future_;
  c10::intrusive_ptr<c10::ivalue::Future> future_, future_result_;
};

} // namespace openreg
