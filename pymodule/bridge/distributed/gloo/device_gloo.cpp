#include "distributed/gloo/device_gloo.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <unistd.h>

#include <algorithm>
#include <initializer_list>
#include <latch>
#include <set>
#include <utility>

#include "compat/symbol_versions.h" // std::condition_variable::wait in c10::ivalue::Future
#include "streams/inline_guard.h"

namespace openreg {

namespace {

using c10d::ProcessGroupGloo;
using AsyncWork = ProcessGroupGloo::AsyncWork;
using AsyncWorkPtr = c10::intrusive_ptr<AsyncWork>;

// A collective on device tensors. It waits for their streams and then runs `host`, the same
// collective on the staged tensors. Everything else, including the future, is as in any collective
// of Gloo.
class DeviceWork final : public AsyncWork {
public:
  DeviceWork(std::shared_ptr<gloo::Context> context, const char *title, AsyncWorkPtr host,
             Staging staging, TensorLists outputs, Tensors inputs)
      : AsyncWork(std::move(context), outputs, host->retrieveOpType(), host->getSequencenumber(),
                  host->getTimeout(), title, inputs),
        host_(std::move(host)), staging_(std::move(staging)), outputs_(std::move(outputs)),
        inputs_(std::move(inputs)) {
    // The flight recorder recorded `host` when it was created.
    trace_id_ = host_.get()->*(&DeviceWork::trace_id_);
    trace_reset_epoch_ = host_.get()->*(&DeviceWork::trace_reset_epoch_);
  }

  void run() override {
    const ObserverPause pause; // only `wait` reports its order
    staging_.wait();
    staging_.copy_to_host();
    host_->run();
    staging_.copy_to_device();
  }

  const Tensors getInputTensors() override { return inputs_; }

  const Tensors getOutputTensors() override {
    Tensors all;
    for (const auto &list : outputs_) {
      all.insert(all.end(), list.begin(), list.end());
    }
    return all;
  }

private:
  AsyncWorkPtr host_;
  Staging staging_;
  TensorLists outputs_;
  Tensors inputs_;
};

// Whether all tensors are on devices. If only some are, or there are none, PyTorch raises the
// error.
bool are_on_devices(std::initializer_list<const Tensors *> lists) {
  bool any = false;
  for (const auto *list : lists) {
    if (!std::all_of(list->begin(), list->end(), is_on_device)) {
      return false;
    }
    any = any || !list->empty();
  }
  return any;
}

bool are_on_devices(const Tensors &tensors, const TensorLists &lists) {
  return are_on_devices({&tensors}) &&
         std::all_of(lists.begin(), lists.end(),
                     [](const auto &list) { return list.empty() || are_on_devices({&list}); });
}

// Host tensors for a message. Gloo accesses them as soon as it gets them, so this waits for the
// streams.
Tensors stage_message(const Tensors &tensors) {
  Staging staging;
  auto host = staging.add(tensors);
  staging.record();
  staging.wait();
  return host;
}

// A Gloo device that opens no connections. All shadows share it, because each device has a thread.
const std::shared_ptr<gloo::transport::Device> &unconnected_device() {
  static const auto &device = *new std::shared_ptr<gloo::transport::Device>(
      ProcessGroupGloo::createDeviceForHostname("127.0.0.1", /*lazyInit=*/true));
  return device;
}

c10::intrusive_ptr<ProcessGroupGloo::Options> shadow_options() {
  auto options = ProcessGroupGloo::Options::create();
  options->devices.push_back(unconnected_device());
  options->threads = 0;
  return options;
}

} // namespace

// A second group with the same contexts and counters but without threads. It creates collectives
// that no thread begins.
class DeviceGloo::Shadow final : public ProcessGroupGloo {
public:
  explicit Shadow(const DeviceGloo &group)
      : ProcessGroupGloo(c10::make_intrusive<c10d::HashStore>(), group.getRank(), group.getSize(),
                         shadow_options()) {
    contexts_ = group.contexts_;
    pgStatus_ = group.pgStatus_;
    local_id_ = group.local_id_;
  }

  // Whether the group still has the connections that this object copied. Since 2.14 `reconfigure`
  // replaces them, with another rank and size.
  bool fits(const DeviceGloo &group) const { return contexts_ == group.contexts_; }

  // Returns the collective that `call` creates. It uses the next numbers of the group.
  template <class Call> AsyncWorkPtr make(DeviceGloo &group, Call call) {
    pg_uid_ = group.pg_uid_;
    pg_desc_ = group.pg_desc_;
    options_->timeout = group.options_->timeout;
    collectiveCounter_ = group.collectiveCounter_;
    seq_ = group.seq_;
    call(*this);
    group.collectiveCounter_ = collectiveCounter_;
    group.seq_ = seq_;
    auto work = std::move(workQueue_.back());
    workQueue_.pop_back();
    return work;
  }
};

// ---- threads ------------------------------------------------------------------------------------

// A thread releases work and its tensors after the work is done, and needs the GIL for that.

namespace {

// The groups of this process. The lock is held while a group is removed or finished.
std::mutex groups_mutex;
std::set<DeviceGloo *> groups;

// Blocks a thread of a group until all its threads are blocked. Then all earlier work has finished.
class ThreadRendezvous final : public AsyncWork {
public:
  ThreadRendezvous(std::shared_ptr<gloo::Context> context, std::shared_ptr<std::latch> all,
                   std::chrono::milliseconds timeout)
      : AsyncWork(std::move(context), {}, c10d::OpType::UNKNOWN, 0, timeout), all_(std::move(all)) {
  }

  void run() override { all_->arrive_and_wait(); }

  const Tensors getInputTensors() override { return {}; }
  const Tensors getOutputTensors() override { return {}; }

private:
  std::shared_ptr<std::latch> all_;
};

} // namespace

DeviceGloo::DeviceGloo(const StorePtr &store, int rank, int size,
                       c10::intrusive_ptr<Options> options)
    : ProcessGroupGloo(store, rank, size, std::move(options)), process_(getpid()) {
  const std::lock_guard lock(groups_mutex);
  groups.insert(this);
}

// Ends the threads as the base class does, but without the GIL. The base class would hold it when
// the last owner does, as DistributedDataParallel does.
DeviceGloo::~DeviceGloo() {
  const WithoutGil no_gil;
  {
    const std::lock_guard lock(groups_mutex);
    groups.erase(this);
  }
  {
    std::unique_lock lock(workMutex_);
    workConsumeCV_.wait(lock, [this] { return workQueue_.empty(); });
    stop_ = true;
  }
  workProduceCV_.notify_all();
  for (auto &thread : threads_) {
    thread.join();
  }
  threads_.clear();
}

void DeviceGloo::finish_all() {
  const std::lock_guard lock(groups_mutex);
  for (auto *group : groups) {
    if (group->process_ == getpid()) {
      group->finish();
    }
  }
}

void DeviceGloo::finish() {
  const auto count = threads_.size();
  auto all = std::make_shared<std::latch>(static_cast<std::ptrdiff_t>(count) + 1);
  {
    const std::lock_guard lock(workMutex_);
    for (size_t i = 0; i < count; i++) {
      workQueue_.push_back(
          c10::make_intrusive<ThreadRendezvous>(contexts_.front(), all, options_->timeout));
    }
  }
  workProduceCV_.notify_all();
  all->arrive_and_wait();
}

template <class Call>
DeviceGloo::WorkPtr DeviceGloo::run_staged(const char *title, Staging staging, TensorLists outputs,
                                           Tensors inputs, Call call) {
  staging.record();
  notify_observers([&](Observer &observer) {
    for (const auto &tensors : outputs) {
      observer.fill(tensors);
    }
  });
  AsyncWorkPtr host;
  {
    const std::lock_guard lock(shadow_mutex_);
    if (!shadow_ || !shadow_->fits(*this)) {
      shadow_ = c10::make_intrusive<Shadow>(*this);
    }
    host = shadow_->make(*this, call);
  }
  auto work =
      c10::make_intrusive<DeviceWork>(contexts_.front(), title, std::move(host), std::move(staging),
                                      std::move(outputs), std::move(inputs));
  {
    const std::lock_guard lock(workMutex_);
    workQueue_.push_back(work);
  }
  workProduceCV_.notify_one();
  return work;
}

// ---- collectives --------------------------------------------------------------------------------

DeviceGloo::WorkPtr DeviceGloo::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) {
  if (!are_on_devices({&tensors})) {
    return ProcessGroupGloo::broadcast(tensors, options);
  }
  Staging staging;
  auto host = staging.add(tensors);
  return run_staged("gloo:broadcast", std::move(staging), {tensors}, tensors,
                    [&](ProcessGroupGloo &shadow) { shadow.broadcast(host, options); });
}

// For dense and sparse tensors: allreduce_sparse calls this, too.
DeviceGloo::WorkPtr DeviceGloo::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) {
  if (!are_on_devices({&tensors})) {
    return ProcessGroupGloo::allreduce(tensors, options);
  }
  Staging staging;
  auto host = staging.add(tensors);
  const auto *title = tensors[0].is_sparse() ? "gloo:sparse_all_reduce" : "gloo:all_reduce";
  return run_staged(title, std::move(staging), {tensors}, tensors,
                    [&](ProcessGroupGloo &shadow) { shadow.allreduce(host, options); });
}

DeviceGloo::WorkPtr DeviceGloo::reduce(Tensors &tensors, const c10d::ReduceOptions &options) {
  if (!are_on_devices({&tensors})) {
    return ProcessGroupGloo::reduce(tensors, options);
  }
  Staging staging;
  auto host = staging.add(tensors);
  return run_staged("gloo:reduce", std::move(staging), {tensors}, tensors,
                    [&](ProcessGroupGloo &shadow) { shadow.reduce(host, options); });
}

DeviceGloo::WorkPtr DeviceGloo::allgather(TensorLists &outputs, Tensors &inputs,
                                          const c10d::AllgatherOptions &options) {
  if (!are_on_devices(inputs, outputs)) {
    return ProcessGroupGloo::allgather(outputs, inputs, options);
  }
  Staging staging;
  auto host_inputs = staging.add(inputs);
  auto host_outputs = staging.add(outputs);
  return run_staged(
      "gloo:all_gather", std::move(staging), outputs, inputs,
      [&](ProcessGroupGloo &shadow) { shadow.allgather(host_outputs, host_inputs, options); });
}

DeviceGloo::WorkPtr DeviceGloo::allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                                    const c10d::AllgatherOptions &options) {
  if (!are_on_devices(inputs, outputs)) {
    return ProcessGroupGloo::allgather_coalesced(outputs, inputs, options);
  }
  Staging staging;
  auto host_inputs = staging.add(inputs);
  auto host_outputs = staging.add(outputs);
  return run_staged("gloo:all_gather", std::move(staging), outputs, inputs,
                    [&](ProcessGroupGloo &shadow) {
                      shadow.allgather_coalesced(host_outputs, host_inputs, options);
                    });
}

DeviceGloo::WorkPtr DeviceGloo::gather(TensorLists &outputs, Tensors &inputs,
                                       const c10d::GatherOptions &options) {
  if (!are_on_devices(inputs, outputs)) {
    return ProcessGroupGloo::gather(outputs, inputs, options);
  }
  Staging staging;
  auto host_inputs = staging.add(inputs);
  auto host_outputs = staging.add(outputs);
  return run_staged(
      "gloo:gather", std::move(staging), outputs, inputs,
      [&](ProcessGroupGloo &shadow) { shadow.gather(host_outputs, host_inputs, options); });
}

DeviceGloo::WorkPtr DeviceGloo::scatter(Tensors &outputs, TensorLists &inputs,
                                        const c10d::ScatterOptions &options) {
  if (!are_on_devices(outputs, inputs)) {
    return ProcessGroupGloo::scatter(outputs, inputs, options);
  }
  Staging staging;
  auto host_outputs = staging.add(outputs);
  auto host_inputs = staging.add(inputs);
  return run_staged(
      "gloo:scatter", std::move(staging), {outputs}, inputs.empty() ? Tensors{} : inputs[0],
      [&](ProcessGroupGloo &shadow) { shadow.scatter(host_outputs, host_inputs, options); });
}

DeviceGloo::WorkPtr DeviceGloo::OPENREG_GLOO_ALL_TO_ALL(at::Tensor &output, at::Tensor &input,
                                                        std::vector<int64_t> &output_counts,
                                                        std::vector<int64_t> &input_counts,
                                                        const c10d::AllToAllOptions &options) {
  if (!is_on_device(output) || output.device() != input.device()) {
    return ProcessGroupGloo::OPENREG_GLOO_ALL_TO_ALL(output, input, output_counts, input_counts,
                                                     options);
  }
  Staging staging;
  auto host_output = staging.add(output);
  auto host_input = staging.add(input);
  return run_staged("gloo:all_to_all", std::move(staging), {{output}}, {input},
                    [&](ProcessGroupGloo &shadow) {
                      shadow.OPENREG_GLOO_ALL_TO_ALL(host_output, host_input, output_counts,
                                                     input_counts, options);
                    });
}

DeviceGloo::WorkPtr DeviceGloo::alltoall(Tensors &outputs, Tensors &inputs,
                                         const c10d::AllToAllOptions &options) {
  if (!are_on_devices({&outputs, &inputs})) {
    return ProcessGroupGloo::alltoall(outputs, inputs, options);
  }
  Staging staging;
  auto host_outputs = staging.add(outputs);
  auto host_inputs = staging.add(inputs);
  return run_staged(
      "gloo:all_to_all", std::move(staging), {outputs}, inputs,
      [&](ProcessGroupGloo &shadow) { shadow.alltoall(host_outputs, host_inputs, options); });
}

// ---- messages -----------------------------------------------------------------------------------

// Invalid messages are rejected before anything waits.

DeviceGloo::WorkPtr DeviceGloo::send(Tensors &tensors, int rank, int tag) {
  if (!are_on_devices({&tensors})) {
    return ProcessGroupGloo::send(tensors, rank, tag);
  }
  auto host = stage_message(tensors);
  return ProcessGroupGloo::send(host, rank, tag);
}

DeviceGloo::WorkPtr DeviceGloo::recv(Tensors &tensors, int rank, int tag) {
  if (!are_on_devices({&tensors})) {
    return ProcessGroupGloo::recv(tensors, rank, tag);
  }
  auto host = stage_message(tensors);
  return ProcessGroupGloo::recv(host, rank, tag);
}

DeviceGloo::WorkPtr DeviceGloo::recvAnysource(Tensors &tensors, int tag) {
  if (!are_on_devices({&tensors})) {
    return ProcessGroupGloo::recvAnysource(tensors, tag);
  }
  auto host = stage_message(tensors);
  return ProcessGroupGloo::recvAnysource(host, tag);
}

// ---- other groups -------------------------------------------------------------------------------

namespace {

// The given options, or the default that PyTorch uses for options that are not Gloo's.
c10::intrusive_ptr<ProcessGroupGloo::Options>
gloo_options(const c10::intrusive_ptr<c10d::Backend::Options> &options) {
  auto own = c10::dynamic_intrusive_pointer_cast<ProcessGroupGloo::Options>(options);
  return own ? own : ProcessGroupGloo::Options::create_default();
}

} // namespace

template <class Make>
c10::intrusive_ptr<c10d::Backend> DeviceGloo::once(const StorePtr &store, Make make) {
  auto group = last_store_ == store ? last_made_.lock() : c10::intrusive_ptr<Backend>();
  if (!group) {
    group = make();
    last_store_ = store;
    last_made_ = c10::weak_intrusive_ptr<Backend>(group);
  }
  return group;
}

c10::intrusive_ptr<c10d::Backend>
DeviceGloo::split(const StorePtr &store, const std::vector<int> &ranks,
                  const c10::intrusive_ptr<Backend::Options> &options) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank_);
  if (found == ranks.end()) {
    return nullptr;
  }
  return once(store, [&] {
    auto own = gloo_options(options);
    own->global_ranks_in_group.clear();
    for (const auto rank : ranks) {
      own->global_ranks_in_group.push_back(groupRanks()[rank]);
    }
    return c10::make_intrusive<DeviceGloo>(store->clone(), static_cast<int>(found - ranks.begin()),
                                           static_cast<int>(ranks.size()), std::move(own));
  });
}

c10::intrusive_ptr<c10d::Backend>
DeviceGloo::merge(const StorePtr &store, const c10::intrusive_ptr<Backend::Options> &options,
                  const int &rank, const int &size) {
  return once(store, [&] {
    return c10::make_intrusive<DeviceGloo>(store->clone(), rank, size, gloo_options(options));
  });
}

} // namespace openreg
