// The backend "gloo" for tensors of devices: PyTorch's ProcessGroupGloo, which computes on CPU
// tensors, given CPU tensors over device memory (staging.h).
//
// Why a class that derives from it, and no backend that wraps one. Processes number their
// collectives in the order of the calls, and what has the same number belongs together; so a
// collective must have its number when it is called, and may begin only when its streams have come
// there. A wrapper could do one or the other. Here a collective on device tensors is made by
// PyTorch's own code in a shadow of the group, which numbers and checks but has no threads that
// would begin it (`Shadow`). It is then queued, within work that waits for the streams first, for
// the threads of the group. So collectives on CPU tensors and on devices are of one order, a
// barrier waits for all of them, and errors, futures, timeouts and the flight recorder are
// PyTorch's. Collectives on CPU tensors are none of this file's business.
//
// As with CUDA: a call returns at once, `wait()` returns when the data has arrived, and work that
// is submitted afterwards, on whichever stream, sees it. Refused, with the same sentences, is what
// Gloo refuses for CUDA tensors (allreduce_coalesced). More than there: send and receive, which
// wait for the current stream when they are called; and gathering coalesced. There, Gloo's threads
// touch device memory in these, and end the process.
#pragma once

#include "compat/process_group_gloo.h"

#include <sys/types.h>

#include <mutex>

#include "distributed/staging.h"

namespace openreg {

class Gloo final : public c10d::ProcessGroupGloo {
public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using StorePtr = c10::intrusive_ptr<c10d::Store>;

  Gloo(const StorePtr &store, int rank, int size, c10::intrusive_ptr<Options> options);
  ~Gloo() override;

  // Waits until the threads of this process' groups have let go of all that was queued so far. Not
  // with the GIL.
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
  WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_counts,
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

  // Makes a collective by `call`, which is given the shadow and calls it with what `staging` gave,
  // and queues it.
  template <class Call>
  WorkPtr run_staged(const char *title, Staging staging, TensorLists outputs, Tensors inputs,
                     Call call);

  // A group of another store, which `make` makes unless the last call was for the same one: PyTorch
  // asks once for each device type that the group serves, and the store is good for one.
  template <class Make> c10::intrusive_ptr<Backend> once(const StorePtr &store, Make make);

  const pid_t process_; // whose threads they are: a child of it has none

  std::mutex shadow_mutex_;
  c10::intrusive_ptr<Shadow> shadow_; // made when it is first needed

  StorePtr last_store_;
  c10::weak_intrusive_ptr<Backend> last_made_{c10::intrusive_ptr<Backend>()};
};

} // namespace openreg
