#include "distributed/communicator.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <unordered_set>

#include "distributed/multi_host_communicator.h"
#include "distributed/polling_thread.h"
#include "distributed/represented_communicator.h"

namespace openreg {

namespace {

// All ranks are on this host.
class LocalCommunicator final : public Communicator {
public:
  LocalCommunicator(const openreg_comm_id &id, const ConnectOptions &settings) {
    openreg_comm_options options{};
    options.name = settings.name.c_str();
    options.timeout_ns = to_ns(settings.timeout);
    options.rank_names = settings.rank_names.empty() ? nullptr : settings.rank_names.data();
    options.share_device = may_share_device();
    if (options.share_device) {
      same_process_ranks_ = SameProcessRanks::join({id.bytes, id.bytes + sizeof id.bytes});
    }
    openreg::check(
        openreg_comm_init(&id, settings.size, settings.rank, settings.device, &options, &comm_));
    enter_registry();
  }

  // Takes ownership of a communicator of the C layer.
  explicit LocalCommunicator(openreg_comm *comm) : comm_(comm) { enter_registry(); }

  ~LocalCommunicator() override {
    {
      const std::lock_guard lock(registry().mutex);
      registry().all.erase(this);
    }
    openreg_comm_destroy(comm_);
  }

  openreg_status run(const openreg_collective &collective) override {
    const Call call(*this);
    return call.may_begin() ? openreg_comm_run(comm_, &collective) : fail_exiting();
  }
  openreg_status exchange(const std::vector<openreg_message> &messages,
                          uint64_t timeout_ns) override {
    const Call call(*this);
    return call.may_begin() ? openreg_comm_exchange(comm_, messages.data(),
                                                    static_cast<int>(messages.size()), timeout_ns)
                            : fail_exiting();
  }
  openreg_status begin(const openreg_collective &collective) override {
    return openreg_comm_begin(comm_, &collective);
  }
  openreg_status finish(uint64_t patience_ns) override {
    const Call call(*this);
    return call.may_begin() ? openreg_comm_finish(comm_, patience_ns) : fail_exiting();
  }
  bool has_core_per_rank() const override { return openreg_comm_has_core_per_rank(comm_); }
  openreg_status check() const override { return openreg_comm_check(comm_); }
  void abort(const std::string &why) override { openreg_comm_abort(comm_, why.c_str()); }

  static void abort_all() {
    registry().is_exiting = true;
    const std::lock_guard lock(registry().mutex);
    for (auto *each : registry().all) {
      if (each->calls_ > 0) {
        each->abort("its process is exiting");
      }
    }
  }

private:
  void enter_registry() {
    const std::lock_guard lock(registry().mutex);
    registry().all.insert(this);
  }

  // Never destroyed: workers may outlive it.
  struct Registry {
    std::mutex mutex;
    std::unordered_set<LocalCommunicator *> all;
    std::atomic<bool> is_exiting{false};
  };
  static Registry &registry() {
    static auto &one = *new Registry;
    return one;
  }

  // A call that may sleep. It counts itself before it checks whether the process is exiting, so it
  // either sees that or is aborted.
  class Call {
  public:
    explicit Call(LocalCommunicator &of) : of_(of) { ++of_.calls_; }
    ~Call() { --of_.calls_; }
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;

    bool may_begin() const { return !registry().is_exiting; }

  private:
    LocalCommunicator &of_;
  };

  static openreg_status fail_exiting() {
    return openreg_fail(OPENREG_COMMUNICATION_FAILURE, "openreg: the process is exiting");
  }

  openreg_comm *comm_ = nullptr;
  std::atomic<int> calls_{0};
};

// Connects the ranks of this host.
CommunicatorPtr connect_local_ranks(const StorePtr &store, const HostMap &map,
                                    const ConnectOptions &settings) {
  auto local = settings;
  local.rank = map.index;
  local.size = static_cast<int>(map.local_ranks().size());
  local.rank_names.clear();
  for (const int rank : map.local_ranks()) {
    local.rank_names.push_back(
        settings.rank_names.empty() ? rank : settings.rank_names[static_cast<size_t>(rank)]);
  }
  const auto id = share_comm_id(store, map, settings.timeout);
  try {
    return std::make_shared<LocalCommunicator>(id, local);
  } catch (...) {
    if (map.index == 0) {
      openreg_comm_id_drop(&id);
    }
    throw;
  }
}

} // namespace

bool may_share_device() {
  const char *const chosen = std::getenv("OPENREG_SHARE_DEVICE");
  const std::string value = chosen == nullptr ? "" : chosen;
  TORCH_CHECK(value.empty() || value == "0" || value == "1",
              "openreg: OPENREG_SHARE_DEVICE=", value, ": expected 0 or 1");
  return value == "1";
}

uint64_t Communicator::note_call(c10::DeviceIndex device, bool waits) {
  if (same_process_ranks_ == nullptr) {
    return 0;
  }
  int stream = OPENREG_STREAM_DEFAULT;
  openreg::check(openreg_stream_current(device, &stream));
  if (!same_process_ranks_->note_call(++called_, {device, stream}, waits)) {
    const std::string why =
        "ranks of one process share a device and its current stream, so they would "
        "wait for each other forever; give each rank its own stream";
    abort(why);
    TORCH_CHECK_WITH(DistBackendError, false, "openreg: ", why);
  }
  return called_;
}

void Communicator::note_wait(uint64_t number, c10::DeviceIndex device) {
  if (same_process_ranks_ != nullptr) {
    int stream = OPENREG_STREAM_DEFAULT;
    openreg::check(openreg_stream_current(device, &stream));
    same_process_ranks_->note_wait(number, {device, stream});
  }
}

namespace {

// Connects the ranks of a group, which may be on several hosts.
CommunicatorPtr connect_ranks(const ConnectOptions &settings) {
  const auto store = c10::make_intrusive<c10d::PrefixStore>(settings.key, settings.store);
  const auto map = map_hosts(store, settings.rank, settings.size, settings.timeout);
  auto communicator = connect_local_ranks(store, map, settings);
  if (map.host_count() > 1) {
    communicator = std::make_shared<MultiHostCommunicator>(store, map, std::move(communicator),
                                                           settings.device, settings.timeout);
  }
  delete_host_keys(store, map);
  return communicator;
}

} // namespace

CommunicatorPtr connect(const ConnectOptions &settings) {
  auto communicator = settings.is_represented
                          ? make_represented_communicator(settings.rank, settings.size)
                          : connect_ranks(settings);
  communicator->set_memory(settings.memory != nullptr
                               ? settings.memory
                               : std::make_shared<NcclMemory>(settings.device, settings.size));
  return communicator;
}

CommunicatorPtr connect(const openreg_comm_id &id, const ConnectOptions &settings) {
  auto communicator = std::make_shared<LocalCommunicator>(id, settings);
  communicator->set_memory(std::make_shared<NcclMemory>(settings.device, settings.size));
  return communicator;
}

std::vector<CommunicatorPtr> connect_all(const std::vector<int> &devices) {
  openreg_comm_options options{};
  options.timeout_ns = to_ns(std::chrono::minutes(10));
  options.share_device = may_share_device();
  const auto size = static_cast<int>(devices.size());
  std::vector<openreg_comm *> made(devices.size());
  check(openreg_comm_init_all(size, devices.data(), &options, made.data()));
  std::vector<CommunicatorPtr> communicators;
  for (auto *each : made) {
    communicators.push_back(std::make_shared<LocalCommunicator>(each));
    const auto device = static_cast<c10::DeviceIndex>(devices[communicators.size() - 1]);
    communicators.back()->set_memory(std::make_shared<NcclMemory>(device, size));
  }
  return communicators;
}

void abort_communicators() {
  PollingThread::get().stop();
  LocalCommunicator::abort_all();
}

} // namespace openreg
