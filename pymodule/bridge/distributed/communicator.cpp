#include "distributed/communicator.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <unordered_set>

#include "distributed/flight_watch.h"
#include "distributed/multi_host_communicator.h"
#include "distributed/work_results.h"

namespace openreg {

namespace {

// All ranks are on this host.
class LocalCommunicator final : public Communicator {
public:
  LocalCommunicator(const openreg_comm_id &id, const Connecting &how) {
    openreg_comm_options options{};
    options.name = how.name.c_str();
    options.timeout_ns = in_ns(how.timeout);
    options.rank_names = how.rank_names.empty() ? nullptr : how.rank_names.data();
    options.share_device = may_share_device();
    if (options.share_device) {
      neighbours_ = Neighbours::join({id.bytes, id.bytes + sizeof id.bytes});
    }
    openreg::check(openreg_comm_init(&id, how.size, how.rank, how.device, &options, &comm_));
    enter_registry();
  }

  // One that was made, and is from now on this one's.
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
    return call.may_begin() ? openreg_comm_run(comm_, &collective) : ended();
  }
  openreg_status exchange(const std::vector<openreg_message> &messages,
                          uint64_t timeout_ns) override {
    const Call call(*this);
    return call.may_begin() ? openreg_comm_exchange(comm_, messages.data(),
                                                    static_cast<int>(messages.size()), timeout_ns)
                            : ended();
  }
  openreg_status begin(const openreg_collective &collective) override {
    return openreg_comm_begin(comm_, &collective);
  }
  openreg_status finish(uint64_t patience_ns) override {
    const Call call(*this);
    return call.may_begin() ? openreg_comm_finish(comm_, patience_ns) : ended();
  }
  bool has_cores() const override { return openreg_comm_has_cores(comm_); }
  openreg_status check() const override { return openreg_comm_check(comm_); }
  void abort(const std::string &why) override { openreg_comm_abort(comm_, why.c_str()); }

  static void abort_all() {
    registry().process_ends = true;
    const std::lock_guard lock(registry().mutex);
    for (auto *each : registry().all) {
      if (each->calls_ > 0) {
        each->abort("its process ends");
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
    std::atomic<bool> process_ends{false};
  };
  static Registry &registry() {
    static auto &one = *new Registry;
    return one;
  }

  // A call that may sleep. It is counted before it looks whether the process ends, so either it
  // sees that or it is aborted.
  class Call {
  public:
    explicit Call(LocalCommunicator &of) : of_(of) { ++of_.calls_; }
    ~Call() { --of_.calls_; }
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;

    bool may_begin() const { return !registry().process_ends; }

  private:
    LocalCommunicator &of_;
  };

  static openreg_status ended() {
    return openreg_fail(OPENREG_COMMUNICATION_FAILURE, "openreg: the process ends");
  }

  openreg_comm *comm_ = nullptr;
  std::atomic<int> calls_{0};
};

// Of the ranks of this host.
CommunicatorPtr connect_neighbours(const StorePtr &store, const HostMap &map,
                                   const Connecting &how) {
  auto local = how;
  local.rank = map.index;
  local.size = static_cast<int>(map.neighbours().size());
  local.rank_names.clear();
  for (const int rank : map.neighbours()) {
    local.rank_names.push_back(how.rank_names.empty() ? rank
                                                      : how.rank_names[static_cast<size_t>(rank)]);
  }
  const auto id = share_id(store, map, how.timeout);
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

uint64_t Communicator::call(c10::DeviceIndex device, bool waits) {
  if (neighbours_ == nullptr) {
    return 0;
  }
  int stream = OPENREG_STREAM_DEFAULT;
  openreg::check(openreg_stream_current(device, &stream));
  if (!neighbours_->call(++called_, {device, stream}, waits)) {
    const std::string why = "ranks of one process that share a device have the same current stream "
                            "there, where each waits for the other: each needs one of its own";
    abort(why);
    TORCH_CHECK_WITH(DistBackendError, false, "openreg: ", why);
  }
  return called_;
}

void Communicator::wait(uint64_t number, c10::DeviceIndex device) {
  if (neighbours_ != nullptr) {
    int stream = OPENREG_STREAM_DEFAULT;
    openreg::check(openreg_stream_current(device, &stream));
    neighbours_->wait(number, {device, stream});
  }
}

CommunicatorPtr connect(const Connecting &how) {
  const auto store = c10::make_intrusive<c10d::PrefixStore>(how.key, how.store);
  const auto map = find_hosts(store, how.rank, how.size, how.timeout);
  auto communicator = connect_neighbours(store, map, how);
  if (map.host_count() > 1) {
    communicator = std::make_shared<SeveralHosts>(store, map, std::move(communicator), how.device,
                                                  how.timeout);
  }
  forget_hosts(store, map);
  return communicator;
}

CommunicatorPtr connect(const openreg_comm_id &id, const Connecting &how) {
  return std::make_shared<LocalCommunicator>(id, how);
}

std::vector<CommunicatorPtr> connect_all(const std::vector<int> &devices) {
  openreg_comm_options options{};
  options.timeout_ns = in_ns(std::chrono::minutes(10));
  options.share_device = may_share_device();
  const auto size = static_cast<int>(devices.size());
  std::vector<openreg_comm *> made(devices.size());
  check(openreg_comm_init_all(size, devices.data(), &options, made.data()));
  std::vector<CommunicatorPtr> communicators;
  for (auto *each : made) {
    communicators.push_back(std::make_shared<LocalCommunicator>(each));
  }
  return communicators;
}

void abort_communicators() {
  FlightWatch::get().stop();
  WorkResults::get().stop();
  LocalCommunicator::abort_all();
}

} // namespace openreg
