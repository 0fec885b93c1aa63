// The backend "occl" of torch.distributed: collectives and messages between devices, without copies
// to the host. In CUDA mode it is the backend "nccl" and behaves as PyTorch's ProcessGroupNCCL.
//
// A call returns when its work is queued, or done: if streams are idle and the other ranks are
// ready, the calling thread runs a short collective itself (operation.h), which is faster than
// handing it over. With asyncOp=false the work runs on the current stream, and there is nothing to
// wait for. Otherwise it runs on a stream of the group, which waits for the current stream first,
// and `wait()` makes the stream that is current then wait for it. A program that forgets to wait
// reads old data.
//
// Ranks number their collectives in the order of the calls, and collectives with the same number
// belong together. So the collectives of a communicator run one after the other, whatever streams
// they are on (CallOrder). Messages are numbered for each peer and direction, and each of these has
// its own order and stream, so messages may overtake collectives and each other.
//
// Calls between startCoalescing and endCoalescing form one operation on one stream: first the
// collectives in their order, then all messages concurrently.
//
// Two mutexes. A thread holds `submit_mutex_` while it queues work, which may wait for room in a
// stream; it does not hold the GIL then. `communicators_mutex_` is held briefly, and abort() takes
// only that.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <climits>
#include <map>
#include <mutex>

#include "distributed/arguments.h"
#include "distributed/completion_hook.h"
#include "distributed/occl/work.h"
#include "distributed/operation.h"
#include "memory/allocation/mempool.h"

namespace openreg {

// X(name): the integer settings of an NCCL communicator. They are accepted and have no effect, but
// split_share, which decides about estimated memory (distributed/nccl_memory.h).
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

class ProcessGroupOccl final : public c10d::Backend {
public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using StorePtr = c10::intrusive_ptr<c10d::Store>;

  struct Config {
#define OPENREG_FIELD(name) int name = INT_MIN; // not set
    OPENREG_NCCL_CONFIG(OPENREG_FIELD)
#undef OPENREG_FIELD
    std::string net_name, comm_name;
  };

  struct Options final : c10d::Backend::Options {
    explicit Options(bool is_high_priority_stream = false);
    // Overrides a function of Backend::Options since 2.14. PyTorch gives a copy to a group that it
    // splits off.
    c10::intrusive_ptr<c10d::Backend::Options> clone() const {
      return c10::make_intrusive<Options>(*this);
    }

    bool is_high_priority_stream;
    // NCCL's settings of a group that was split from another one. They have no effect here.
    c10::intrusive_ptr<ProcessGroupOccl> split_from;
    int split_color = -2;
    Config config;
  };

  ProcessGroupOccl(StorePtr store, int rank, int size, c10::intrusive_ptr<Options> options);
  ~ProcessGroupOccl() override;

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
  bool supportsShrinking() const override {
    return true;
  }

  // ---- collectives (collectives.cpp) ------------------------------------------------------------

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

  // ---- messages (messages.cpp), coalescing (submit.cpp) -----------------------------------------

  WorkPtr send(Tensors &tensors, int rank, int tag) override;
  WorkPtr recv(Tensors &tensors, int rank, int tag) override;
  WorkPtr recvAnysource(Tensors &tensors, int tag) override;
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  // ---- the group (group.cpp) --------------------------------------------------------------------

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
  // Returns a connected group of the ranks that are not excluded, which all call it. `flags` is
  // NCCL's: with kShrinkAbort this group is aborted first, because an excluded rank may be dead.
  static constexpr int kShrinkAbort = 1;
  c10::intrusive_ptr<Backend> shrink(const std::vector<int64_t> &excluded, int flags,
                                     const c10::intrusive_ptr<Backend::Options> &options) override;
  // How often groups were split off, as NCCL counts it: also by ranks that are not in the new
  // group.
  int64_t split_count() const {
    return split_count_;
  }
  void split_without_color() {
    ++split_count_;
  }
  bool is_connected();
  void enableCollectivesTiming() override {
    is_timed_ = true;
  }
  // Calls the hook after each work that ends without a failure (completion_hook.h).
  void
  registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)> &&hook) override;
  void waitForPendingWorks() override; // and for the hook
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;
  uint64_t id() const {
    return id_;
  }
  // Overrides a function of Backend since 2.14.
  void addEphemeralTimeout(const std::chrono::milliseconds &time) {
    ephemeral_timeout_->add(time);
  }

  // ---- memory allocation (memory.cpp) -----------------------------------------------------------

  // As with NCCL: true for devices that support multicast, from compute capability 9.0 on.
  bool supportsTensorAlloc(c10::DeviceIndex device) override;
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  // The allocator for memory pools of this group.
  std::shared_ptr<PluggableAllocator> memory_allocator();
  // Registers nothing, but requires that the group is connected, as NCCL does.
  void check_pool(int device);
  // Release the estimated memory of the communicator of this group's device (nccl_memory.h) and
  // reserve it again. In between, calls raise.
  void suspend() override;
  void resume() override;
  std::unordered_map<std::string, uint64_t> getMemoryStats() override;

  // Whether a call first checks what this rank sends for NaN. TORCH_NCCL_NAN_CHECK is the default.
  void set_nan_check(bool checks) {
    checks_nan_ = checks;
  }

private:
  // The group's communicators and streams on a device. Messages outside of coalescing need only two
  // ranks: they use a communicator for the pair, unless the group's was created at the start.
  struct Connection {
    CommunicatorPtr communicator; // null until it is needed
    int stream;                   // for asynchronous work
    CallOrder collectives;
    std::map<int, CommunicatorPtr> pairs; // by peer
    // By communicator, peer, and direction (true: sends).
    std::map<std::tuple<const Communicator *, int, bool>, CallOrder> messages;
    // The streams of messages outside of coalescing, by peer and direction.
    std::map<std::pair<int, bool>, int> message_streams;
  };

  // The arguments of a call in one form for all collectives and messages.
  struct Request {
    c10d::OpType type;
    std::string title;          // "all_reduce"
    const char *name = nullptr; // in the profiler's parameters; null: the title
    bool is_async;
    std::chrono::milliseconds timeout = kUnset;
    Tensors inputs{}, outputs{}; // the first tensor determines the device
    std::vector<CollectiveArguments> collectives{};
    std::vector<openreg_message> messages{};
    std::vector<int64_t> input_rows{}, output_rows{};
    std::vector<std::pair<at::Tensor, at::Tensor>> copies{}; // to, from; run behind the work
    Tensors reads{}, writes{};                               // of coalesced calls
    Tensors kept{};                                          // other tensors to keep alive
    bool has_collectives = false, is_barrier = false, is_coalesced = false;
    int source = -1; // the sender of a received message
    c10::DeviceIndex device = -1;

    CollectiveArguments &add(openreg_collective_kind kind, openreg_dtype dtype) {
      has_collectives = true;
      auto &added = collectives.emplace_back();
      added.call.kind = kind;
      added.call.dtype = dtype;
      return added;
    }
    bool is_message() const { return !has_collectives; }
  };
  static constexpr std::chrono::milliseconds kUnset{-1};
  using StackPtr = std::shared_ptr<const PythonStack>;

  // Queues a request, or adds it to the coalesced ones. Returns null for synchronous work, which
  // runs on the current stream.
  WorkPtr submit(Request request);
  static bool sends(const Request &request);
  // With `submit_mutex_` held:
  WorkPtr add_coalesced(Request request, StackPtr stack);
  WorkPtr queue(Request request, StackPtr stack);
  at::Tensor own_output(const Request &request) const;
  c10::intrusive_ptr<OcclWork> make_work(const Request &request, int stream) const;
  int choose_stream(Connection &connection, const Request &request);
  CommunicatorPtr choose_communicator(Connection &connection, Request &request);
  template <class Do>
  static void for_each_call_order(Connection &connection, const Request &request,
                                  const Communicator *communicator, Do act);
  Connection &connection_on(c10::DeviceIndex device);
  const CommunicatorPtr &communicator_on(c10::DeviceIndex device);
  CommunicatorPtr join(std::string key, std::vector<int> ranks, c10::DeviceIndex device);

  // The sequence number of the next call.
  uint64_t next_number(bool is_message) const;
  // For the flight recorder (flight_entries.cpp).
  FlightCall describe(const Request &request, std::string title, StackPtr stack);
  FlightEntryPtr add_flight_entry(const Request &request, StackPtr stack);
  const std::shared_ptr<FlightGroup> &flight_group();

  NcclMemory &memory_of_communicator();
  void check_alive();
  void abort_with(const std::string &reason);
  c10::DeviceIndex guess_device();
  int global_rank(int rank) const;

  const StorePtr store_;
  const c10::intrusive_ptr<Options> options_;
  const uint64_t id_;
  int rank_start_ = 0, rank_stride_ = 0; // global ranks of the group, for the profiler

  std::mutex submit_mutex_;
  std::map<c10::DeviceIndex, Connection> connections_;
  uint64_t collective_number_ = 0, message_number_ = 0;
  uint64_t call_number_ = 0; // counts all calls, including coalesced ones
  std::shared_ptr<FlightGroup> flight_group_;
  const std::shared_ptr<EphemeralTimeout> ephemeral_timeout_ = std::make_shared<EphemeralTimeout>();
  std::unique_ptr<MemPool> pool_; // for allocateTensor()
  int communicator_count_ = 0;
  bool is_represented_ = false; // a dry run in which not all of its ranks run
  bool is_eager_ = false;       // the communicator was created before the first call
  bool is_coalescing_ = false;
  std::optional<Request> coalesced_;
  std::atomic<bool> is_timed_;
  std::unique_ptr<CompletionHook> completion_hook_; // null: there is none
  bool is_blocking_;
  std::atomic<bool> checks_nan_;
  // By device: what a group that this one was split from shares with it (split_share).
  std::map<c10::DeviceIndex, Communicator::Memory> shared_memory_;
  std::atomic<int64_t> split_count_{0};
  bool counts_as_split_ = false; // the first communicator counts as a split of the other group
  int shrink_count_ = 0;

  std::mutex communicators_mutex_;
  std::vector<CommunicatorPtr> communicators_; // all communicators of the group
  std::string abort_reason_;                   // empty: the group is alive
};

} // namespace openreg
