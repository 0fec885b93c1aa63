// The backend "gloo" for device tensors: PyTorch's ProcessGroupGloo, which computes on CPU tensors,
// works on CPU tensors over device memory (staging.h).
//
// Why this class derives from ProcessGroupGloo and does not wrap it: processes number their
// collectives in the order of the calls, and collectives with the same number belong together. So a
// collective must get its number when it is called, but may begin only when its streams have
// arrived. A wrapper can do only one of these. Here PyTorch's own code creates a collective on
// device tensors in a shadow of the group, which numbers and checks it but has no threads that
// would begin it (`Shadow`). The group's threads then run it inside work that waits for the streams
// first. So collectives on CPU tensors and on devices share one order, a barrier waits for both,
// and errors, futures, timeouts and the flight recorder are PyTorch's. This file does not change
// collectives on CPU tensors.
//
// As with CUDA, a call returns at once, `wait()` returns when the data has arrived, and work that
// is submitted after that, on any stream, sees it. What Gloo rejects for CUDA tensors is rejected
// with the same messages (allreduce_coalesced). Two things work here that do not work with CUDA,
// where Gloo's threads touch device memory and crash the process: send and receive, which wait for
// the current stream when they are called, and allgather_coalesced.
#pragma once

#include "compat/process_group_gloo.h"

#include <sys/types.h>

#include <mutex>

#include "distributed/staging.h"

namespace openreg {

class DeviceGloo final : public c10d::ProcessGroupGloo {
public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using StorePtr = c10::intrusive_ptr<c10d::Store>;

  DeviceGloo(const StorePtr &store, int rank, int size, c10::intrusive_ptr<Options> options);
  ~DeviceGloo() override;

  // Waits until the threads of this process's groups have released all work that was queued so far.
  // The caller must not hold the GIL.
  static void finish_all();

  WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) override;
  WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override;
  WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &options) override;
  WorkPtr allgather(TensorLists &outputs, Tensors &inputs,
                    const c10d::AllgatherOptions &options) override;
  WorkPtr allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                              const c10d::AllgatherOptions &options) override;
  WorkPtr gather(TensorLists &outputs, Tensors &inputs,
                 const c10d::GatherOptions &options) override;
  WorkPtr scatter(Tensors &outputs, TensorLists &inputs,
                  const c10d::ScatterOptions &options) override;
  WorkPtr OPENREG_GLOO_ALL_TO_ALL(at::Tensor &output, at::Tensor &input,
                                  std::vector<int64_t> &output_counts,
                                  std::vector<int64_t> &input_counts,
                                  const c10d::AllToAllOptions &options) override;
  WorkPtr alltoall(Tensors &outputs, Tensors &inputs,
                   const c10d::AllToAllOptions &options) override;

  WorkPtr send(Tensors &tensors, int rank, int tag) override;
  WorkPtr recv(Tensors &tensors, int rank, int tag) override;
  WorkPtr recvAnysource(Tensors &tensors, int tag) override;

  c10::intrusive_ptr<Backend> split(const StorePtr &store, const std::vector<int> &ranks,
                                    const c10::intrusive_ptr<Backend::Options> &options) override;
  c10::intrusive_ptr<Backend> merge(const StorePtr &store,
                                    const c10::intrusive_ptr<Backend::Options> &options,
                                    const int &rank, const int &size) override;

private:
  class Shadow;

  void finish();

  // Creates a collective and queues it. `call` receives the shadow and calls the collective on it,
  // with the tensors from `staging`.
  template <class Call>
  WorkPtr run_staged(const char *title, Staging staging, TensorLists outputs, Tensors inputs,
                     Call call);

  // Returns a group for another store. Calls `make` unless the last call was for the same store:
  // PyTorch asks once for each device type of the group, and a store serves one group.
  template <class Make> c10::intrusive_ptr<Backend> once(const StorePtr &store, Make make);

  const pid_t process_; // that owns the threads; a forked child has none

  std::mutex shadow_mutex_;
  c10::intrusive_ptr<Shadow> shadow_; // created on first use

  StorePtr last_store_;
  c10::weak_intrusive_ptr<Backend> last_made_{c10::intrusive_ptr<Backend>()};
};

} // namespace openreg
