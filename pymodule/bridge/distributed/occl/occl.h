// The backend "occl" of torch.distributed: collectives and messages between devices, without the
// host. In CUDA mode it is the backend "nccl", and what it does is what PyTorch's ProcessGroupNCCL
// does.
//
// A call returns when its work is queued, or done: a short collective on idle streams is done by
// the calling thread if the other ranks are there (operation.h), for a hand-over would take longer.
// With asyncOp=false that is work of the current stream and there is nothing to wait for; otherwise
// it is work of a stream of the group's own, which waits for the current stream first, and `wait()`
// makes the then current stream wait for it. Who forgets to wait reads what was there before.
//
// Ranks number their collectives in the order of the calls, and what has the same number belongs
// together; so the collectives of a communicator are done one after the other, whichever streams
// they are given to (`Order`). Messages are numbered for each peer and direction, and each of these
// has an order and a stream of its own, so that they pass each other and collectives.
//
// What is called between startCoalescing and endCoalescing is one operation of one stream: its
// collectives in their order, then all of its messages at the same time.
//
// Two mutexes. `submitting_` is held while work is queued, which may wait for room in a stream; who
// holds it does not have the GIL. `naming_` is held for moments, and is all that abort() takes.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <climits>
#include <map>
#include <mutex>

#include "distributed/arguments.h"
#include "distributed/occl/work.h"
#include "distributed/operation.h"
#include "memory/allocation/mempool.h"

namespace openreg {

// X(name): what NCCL can be told of a communicator, in numbers. Taken, and without effect.
#define OPENREG_NCCL_CONFIG(X)                                                                     \
  X(blocking)                                                                                      \
  X(cga_cluster_size)                                                                              \
  X(min_ctas)                                                                                      \
  X(max_ctas)                                                                                      \
  X(split_share)                                                                                   \
  X(traffic_class)                                                                                 \
  X(collnet_enable)                                                                                \
  X(cta_policy)                                                                                    \
  X(shrink_share)                                                                                  \
  X(nvls_ctas)                                                                                     \
  X(n_channels_per_net_peer)                                                                       \
  X(nvlink_centric_sched)                                                                          \
  X(graph_usage_mode)                                                                              \
  X(num_rma_ctx)

class Occl final : public c10d::Backend {
public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using StorePtr = c10::intrusive_ptr<c10d::Store>;

  struct Config {
#define OPENREG_FIELD(name) int name = INT_MIN; // not told
    OPENREG_NCCL_CONFIG(OPENREG_FIELD)
#undef OPENREG_FIELD
    std::string net_name, comm_name;
  };

  struct Options final : c10d::Backend::Options {
    explicit Options(bool is_high_priority_stream = false);

    bool is_high_priority_stream;
    // What NCCL is told of a group that is a part of another. Nothing depends on it here.
    c10::intrusive_ptr<Occl> split_from;
    int split_color = -2;
    Config config;
  };

  Occl(StorePtr store, int rank, int size, c10::intrusive_ptr<Options> options);
  ~Occl() override;

  const std::string getBackendName() const override {
    return backend_name();
  }
  c10::intrusive_ptr<Options> options() const {
    return options_;
  }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override {
    return options_;
  }
  bool supportsSplitting() const override {
    return true;
  }
  bool supportsCoalescing() const override {
    return true;
  }

  // ---- collectives (occl.cpp) -------------------------------------------------------------------

  WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) override;
  WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override;
  WorkPtr allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options) override;
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
  WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_rows,
                        std::vector<int64_t> &input_rows,
                        const c10d::AllToAllOptions &options) override;
  WorkPtr alltoall(Tensors &outputs, Tensors &inputs,
                   const c10d::AllToAllOptions &options) override;
  WorkPtr barrier(const c10d::BarrierOptions &options) override;

  // ---- messages (occl_messages.cpp), several at once (occl_submit.cpp) --------------------------

  WorkPtr send(Tensors &tensors, int rank, int tag) override;
  WorkPtr recv(Tensors &tensors, int rank, int tag) override;
  WorkPtr recvAnysource(Tensors &tensors, int tag) override;
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  // ---- the group (occl_group.cpp) ---------------------------------------------------------------

  void setTimeout(std::chrono::milliseconds timeout) override {
    options_->timeout = timeout;
  }
  void setSequenceNumberForGroup() override {} // each group counts from 0
  uint64_t getSequenceNumberForGroup() override {
    return collective_number_;
  }
  void eagerConnectSingleDevice(at::Device device) override;
  c10::intrusive_ptr<Backend> split(const StorePtr &store, const std::vector<int> &ranks,
                                    const c10::intrusive_ptr<Backend::Options> &options) override;
  c10::intrusive_ptr<Backend> merge(const StorePtr &store,
                                    const c10::intrusive_ptr<Backend::Options> &options,
                                    const int &rank, const int &size) override;
  int64_t split_count() const {
    return split_count_;
  }
  bool is_connected();
  void enableCollectivesTiming() override {
    times_ = true;
  }
  void waitForPendingWorks() override;
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;
  uint64_t id() const {
    return id_;
  }
  void add_ephemeral_timeout(std::chrono::milliseconds time) {
    extra_time_->add(time);
  }

  // ---- memory (occl_memory.cpp), of which every rank reaches all --------------------------------

  // As NCCL's, where devices can multicast: from the 9th generation on.
  bool supportsTensorAlloc(c10::DeviceIndex device) override;
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  // What a pool takes memory from.
  std::shared_ptr<PluggableAllocator> memory_allocator();
  // Nothing is to be registered; the group must be connected, as NCCL's.
  void check_pool(int device);

private:
  // What the group has on a device. Messages that are not coalesced do not need the whole group:
  // they have a communicator for each pair, unless the group's was there from the start.
  struct Connection {
    CommunicatorPtr communicator; // null until it is needed
    int stream;                   // for what the current stream shall not do itself
    Order collectives;
    std::map<int, CommunicatorPtr> pairs; // by peer
    // By communicator, peer, and whether they are sent.
    std::map<std::tuple<const Communicator *, int, bool>, Order> messages;
    std::map<std::pair<int, bool>, int> lanes; // streams of what is not coalesced
  };

  // What is asked for by a call.
  struct Request {
    c10d::OpType type;
    std::string title;          // "all_reduce"
    const char *name = nullptr; // as the profiler's parameters have it; null: as the title
    bool is_async;
    std::chrono::milliseconds timeout = kUnset;
    Tensors inputs{}, outputs{}; // not empty: the first says on which device
    std::vector<Collective> collectives{};
    std::vector<openreg_message> messages{};
    std::vector<int64_t> input_rows{}, output_rows{};
    std::vector<std::pair<at::Tensor, at::Tensor>> copies{}; // afterwards, on its stream: to, from
    Tensors reads{}, writes{};                               // of what is coalesced
    Tensors kept{};                                          // besides inputs and outputs
    bool has_collectives = false, is_barrier = false, is_coalesced = false;
    int source = -1; // of a message that is received
    c10::DeviceIndex device = -1;

    Collective &add(openreg_collective_kind kind, openreg_dtype dtype) {
      has_collectives = true;
      auto &added = collectives.emplace_back();
      added.call.kind = kind;
      added.call.dtype = dtype;
      return added;
    }
    bool is_message() const { return !has_collectives; }
  };
  static constexpr std::chrono::milliseconds kUnset{-1};
  using Frames = std::shared_ptr<const PythonFrames>;

  // Takes a request its way: queues it, or adds it to those that are queued together. None for what
  // the current stream does.
  WorkPtr submit(Request request);
  // With `submitting_` held:
  WorkPtr add_coalesced(Request request, Frames frames);
  WorkPtr queue(Request request, Frames frames);
  at::Tensor own_part(const Request &request) const;
  c10::intrusive_ptr<OcclWork> make_work(const Request &request, int stream) const;
  int choose_stream(Connection &connection, const Request &request);
  CommunicatorPtr choose_communicator(Connection &connection, Request &request);
  template <class Do>
  static void for_each_order(Connection &connection, const Request &request,
                             const Communicator *communicator, Do act);
  Connection &connection_on(c10::DeviceIndex device);
  const CommunicatorPtr &communicator_on(c10::DeviceIndex device);
  CommunicatorPtr join(std::string key, std::vector<int> ranks, c10::DeviceIndex device);

  // The number of a call that comes next.
  uint64_t next_number(bool is_message) const;
  // For the flight recorder (occl_record.cpp).
  RecordedCall describe(const Request &request, std::string title, Frames frames);
  RecordPtr record(const Request &request, Frames frames);
  const std::shared_ptr<RecordedGroup> &recorded_group();

  void check_alive();
  c10::DeviceIndex guess_device();
  int global_rank(int rank) const;

  const StorePtr store_;
  const c10::intrusive_ptr<Options> options_;
  const uint64_t id_;
  int rank_start_ = 0, rank_stride_ = 0; // of the group in the world, for the profiler

  std::mutex submitting_;
  std::map<c10::DeviceIndex, Connection> connections_;
  uint64_t collective_number_ = 0, message_number_ = 0;
  uint64_t call_number_ = 0; // of all, also those that are queued together
  std::shared_ptr<RecordedGroup> recorded_;
  const std::shared_ptr<ExtraTime> extra_time_ = std::make_shared<ExtraTime>();
  std::unique_ptr<MemPool> pool_; // of tensors that the group allocates
  int communicator_count_ = 0;
  bool is_eager_ = false; // the communicator is there before the first call
  bool is_coalescing_ = false;
  std::optional<Request> coalesced_;
  std::atomic<bool> times_;
  bool blocks_;
  int64_t split_count_ = 0;

  std::mutex naming_;
  std::vector<CommunicatorPtr> named_; // all of the group's
  std::string ended_;                  // why; empty: it goes on
};

} // namespace openreg
