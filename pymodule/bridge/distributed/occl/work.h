// Work of a group on its devices, as a program sees it: a place on a stream.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "distributed/operation.h"
#include "distributed/staging.h"

namespace openreg {

class OcclWork final : public c10d::Work {
public:
  struct Facts {
    int rank;
    c10d::OpType type;
    std::string title;
    std::string group, description; // what the profiler is told
    uint64_t number;
    bool is_message;
    int source; // of a message that is received; else -1
    std::chrono::milliseconds timeout;
    bool is_barrier;
    bool blocks; // wait() waits on the host
    c10::DeviceIndex device;
    int stream;
  };

  OcclWork(Facts facts, const std::optional<Tensors> &inputs, Tensors outputs);
  ~OcclWork() override;

  // What was queued: its events, and the tensors that it reads and writes, which are kept until it
  // has been waited for. Without that, it is done.
  void attach(CommunicatorPtr communicator, std::shared_ptr<Outcome> outcome, SharedEvent start,
              SharedEvent end, uint64_t call, Tensors used);
  // Tells the profiler that it was queued.
  void end_profiling();

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return outputs_; }

  // The current stream waits; the host does not, but for a barrier, or when it was told to.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  void blockCurrentStream() override { synchronize(); }
  void abort() override;

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  // The number of a c10d::WorkResult, when it has ended.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  float getDuration() const override;
  uint64_t getSequencenumber() const override { return facts_.number; }
  std::chrono::milliseconds timeout() const { return facts_.timeout; }

private:
  bool is_done() const;
  void raise_failure() const;
  void wait_on_host(std::chrono::milliseconds timeout);

  Facts facts_;
  Tensors outputs_;
  CommunicatorPtr communicator_;
  std::shared_ptr<Outcome> outcome_;
  SharedEvent start_, end_;
  uint64_t call_ = 0; // of the communicator's

  std::mutex mutex_of_used_;
  Tensors used_;

  std::mutex mutex_of_future_;
  c10::intrusive_ptr<c10::ivalue::Future> future_, future_result_;
};

} // namespace openreg
