// The life of a group: its communicators, splitting, failures and shutdown.

#include "distributed/occl/process_group_occl.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

#include "distributed/flight_watch.h"
#include "distributed/represented_communicator.h"
#include "streams/inline_guard.h"

namespace openreg {

namespace {

constexpr std::chrono::milliseconds kNcclTimeout = std::chrono::minutes(10);

std::atomic<uint64_t> next_id{0};

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Waits on the host. A failure of the work stays with the device, for the program's next
// synchronization to report.
void wait_quietly(const openreg_event *event) {
  constexpr uint64_t kSliceNs = 50'000'000;
  while (openreg_event_query(event) == OPENREG_NOT_READY) {
    const auto status = openreg_event_synchronize_for(event, kSliceNs);
    if (status != OPENREG_OK && status != OPENREG_NOT_READY) {
      openreg_device_keep_failure(openreg_event_device(event), status);
    }
  }
}

} // namespace

ProcessGroupOccl::Options::Options(bool is_high_priority_stream)
    : c10d::Backend::Options(backend_name(),
                             in_cuda_mode() ? kNcclTimeout : kBackendDefaultTimeout),
      is_high_priority_stream(is_high_priority_stream) {}

ProcessGroupOccl::ProcessGroupOccl(StorePtr store, int rank, int size,
                                   c10::intrusive_ptr<Options> options)
    : Backend(rank, size), store_(std::move(store)), options_(std::move(options)), id_(next_id++),
      is_timed_(c10d::getCvarBool({"TORCH_NCCL_ENABLE_TIMING", "NCCL_ENABLE_TIMING"}, false)),
      is_blocking_(c10d::getCvarBool({"TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT"}, false)),
      checks_nan_(c10d::getCvarBool({"TORCH_NCCL_NAN_CHECK"}, false)),
      counts_as_split_(options_->split_from != nullptr) {
  int count = 0;
  check(openreg_device_count(&count));
  TORCH_CHECK_VALUE(count > 0, "ProcessGroup", backend_title(),
                    " is only supported with GPUs, no GPUs found!");
  setGroupUid(options_->group_name);
  c10d::getGlobalRankStartAndStride(options_->global_ranks_in_group, rank_start_, rank_stride_);
  auto ranks = all_ranks(size_);
  std::transform(ranks.begin(), ranks.end(), ranks.begin(),
                 [this](int rank) { return global_rank(rank); });
  is_represented_ = have_absent_rank(ranks);
  init();
}

// Queued work keeps its communicator alive and goes on.
ProcessGroupOccl::~ProcessGroupOccl() {
  if (completion_hook_) {
    const WithoutGil no_gil;
    completion_hook_.reset();
  }
}

int ProcessGroupOccl::global_rank(int rank) const {
  const auto &ranks = options_->global_ranks_in_group;
  return ranks.empty() ? rank : static_cast<int>(ranks.at(rank));
}

// ---- communicators ------------------------------------------------------------------------------

CommunicatorPtr ProcessGroupOccl::join(std::string key, std::vector<int> ranks,
                                       c10::DeviceIndex device) {
  ConnectOptions settings;
  settings.store = store_;
  settings.key = std::move(key);
  settings.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin());
  settings.size = static_cast<int>(ranks.size());
  settings.device = device;
  settings.name = pg_desc_.empty() || pg_desc_ == "undefined" ? pg_uid_ : pg_desc_;
  std::transform(ranks.begin(), ranks.end(), std::back_inserter(settings.rank_names),
                 [this](int rank) { return global_rank(rank); });
  settings.timeout = options_->timeout;
  settings.is_represented = is_represented_;
  if (const auto shared = shared_memory_.find(device); shared != shared_memory_.end()) {
    settings.memory = shared->second;
  }
  auto made = connect(settings);
  const auto &all = options_->global_ranks_in_group;
  const auto numbers = all_ranks(size_);
  FlightRecorder::get().add_group(
      *flight_group(), all.empty() ? std::vector<uint64_t>(numbers.begin(), numbers.end()) : all);
  FlightWatch::get().add(made, global_rank(rank_));
  const std::lock_guard lock(communicators_mutex_);
  communicators_.push_back(made);
  if (!abort_reason_.empty()) {
    made->abort(abort_reason_);
  }
  return made;
}

ProcessGroupOccl::Connection &ProcessGroupOccl::connection_on(c10::DeviceIndex device) {
  const auto [found, is_new] = connections_.try_emplace(device);
  if (is_new) {
    const auto priority = options_->is_high_priority_stream ? -1 : 0;
    check(openreg_stream_from_pool(device, priority, &found->second.stream));
  }
  return found->second;
}

// Ranks use their devices in the same order, so the n-th communicator of each rank is the same one.
const CommunicatorPtr &ProcessGroupOccl::communicator_on(c10::DeviceIndex device) {
  auto &communicator = connection_on(device).communicator;
  if (!communicator) {
    if (std::exchange(counts_as_split_, false) && options_->split_from) {
      ++options_->split_from->split_count_;
    }
    communicator = join(c10::str("group/", communicator_count_++), all_ranks(size_), device);
  }
  return communicator;
}

void ProcessGroupOccl::eagerConnectSingleDevice(at::Device device) {
  const WithoutGil no_gil;
  const std::lock_guard lock(submit_mutex_);
  communicator_on(device_index(device.index()));
  is_eager_ = true;
}

bool ProcessGroupOccl::is_connected() {
  const WithoutGil no_gil;
  const std::lock_guard lock(submit_mutex_);
  return std::any_of(connections_.begin(), connections_.end(),
                     [](const auto &each) { return each.second.communicator != nullptr; });
}

// For a call without a device: the bound device, one that the group uses already, or the device
// with the number of the rank.
c10::DeviceIndex ProcessGroupOccl::guess_device() {
  if (const auto bound = getBoundDeviceId()) {
    return bound->index();
  }
  const WithoutGil no_gil;
  const std::lock_guard lock(submit_mutex_);
  if (!connections_.empty()) {
    return connections_.begin()->first;
  }
  int count = 0;
  check(openreg_device_count(&count));
  return static_cast<c10::DeviceIndex>(global_rank(rank_) % count);
}

// ---- other groups -------------------------------------------------------------------------------

c10::intrusive_ptr<c10d::Backend>
ProcessGroupOccl::split(const StorePtr &store, const std::vector<int> &ranks,
                        const c10::intrusive_ptr<Backend::Options> &options) {
  const c10::Device device(kDeviceType, guess_device());
  ++split_count_;
  const auto found = std::find(ranks.begin(), ranks.end(), rank_);
  if (found == ranks.end()) {
    return nullptr;
  }
  auto own = c10::dynamic_intrusive_pointer_cast<Options>(options);
  TORCH_CHECK(own != nullptr, "opts not a ProcessGroup", backend_title(), "::Options.");
  std::vector<uint64_t> global_ranks;
  std::transform(ranks.begin(), ranks.end(), std::back_inserter(global_ranks),
                 [this](int rank) { return global_rank(rank); });
  own->global_ranks_in_group = std::move(global_ranks);
  own->split_color = *std::min_element(ranks.begin(), ranks.end());
  auto group =
      c10::make_intrusive<ProcessGroupOccl>(store->clone(), static_cast<int>(found - ranks.begin()),
                                            static_cast<int>(ranks.size()), std::move(own));
  group->counts_as_split_ = false; // it counts already
  group->setGroupDesc(options->group_desc);
  if (group->options_->config.split_share == 1) {
    const std::lock_guard lock(submit_mutex_);
    for (const auto &[index, connection] : connections_) {
      if (connection.communicator) {
        group->shared_memory_.emplace(index, connection.communicator->memory());
      }
    }
  }
  group->eagerConnectSingleDevice(device);
  return group;
}

c10::intrusive_ptr<c10d::Backend>
ProcessGroupOccl::merge(const StorePtr &store, const c10::intrusive_ptr<Backend::Options> &options,
                        const int &rank, const int &size) {
  auto own = c10::dynamic_intrusive_pointer_cast<Options>(options);
  TORCH_CHECK(own != nullptr, "opts not a ProcessGroup", backend_title(), "::Options.");
  return c10::make_intrusive<ProcessGroupOccl>(store->clone(), rank, size, std::move(own));
}

c10::intrusive_ptr<c10d::Backend>
ProcessGroupOccl::shrink(const std::vector<int64_t> &excluded, int flags,
                         const c10::intrusive_ptr<Backend::Options> &options) {
  std::vector<int> ranks;
  for (const auto rank : excluded) {
    TORCH_CHECK_VALUE(rank >= 0 && rank < size_, "Invalid rank ", rank, " for group size ", size_);
  }
  for (const auto rank : all_ranks(size_)) {
    if (std::find(excluded.begin(), excluded.end(), rank) == excluded.end()) {
      ranks.push_back(rank);
    }
  }
  const auto found = std::find(ranks.begin(), ranks.end(), rank_);
  TORCH_CHECK_VALUE(!excluded.empty() && found != ranks.end(), "Rank ", rank_,
                    " cannot shrink a group of ", size_, " ranks by the ranks ",
                    c10::Join(", ", excluded), ": exclude at least one rank, and not the caller");
  const auto device = guess_device();
  if ((flags & kShrinkAbort) != 0) {
    abort_with("the group was aborted to shrink it");
  }
  auto own = c10::dynamic_intrusive_pointer_cast<Options>(options);
  TORCH_CHECK(options == nullptr || own != nullptr, "opts not a ProcessGroup", backend_title(),
              "::Options.");
  auto settings = c10::make_intrusive<Options>(own ? *own : *options_);
  settings->timeout = options_->timeout;
  settings->split_from = nullptr;
  settings->global_ranks_in_group.clear();
  std::transform(ranks.begin(), ranks.end(), std::back_inserter(settings->global_ranks_in_group),
                 [this](int rank) { return global_rank(rank); });
  const auto store = c10::make_intrusive<c10d::PrefixStore>(
      c10::str("shrink/", shrink_count_++, "/", c10::Join(",", ranks)), store_->clone());
  auto group = c10::make_intrusive<ProcessGroupOccl>(store, static_cast<int>(found - ranks.begin()),
                                                     static_cast<int>(ranks.size()), settings);
  group->eagerConnectSingleDevice({kDeviceType, device});
  return group;
}

// ---- failures and shutdown ----------------------------------------------------------------------

void ProcessGroupOccl::check_alive() {
  const std::lock_guard lock(communicators_mutex_);
  TORCH_CHECK_WITH(DistBackendError, abort_reason_.empty(), "ProcessGroup", backend_title(), ": ",
                   abort_reason_);
  for (const auto &communicator : communicators_) {
    check(communicator->check());
  }
}

c10d::ErrorType ProcessGroupOccl::getError() {
  const std::lock_guard lock(communicators_mutex_);
  const auto failed = std::find_if(communicators_.begin(), communicators_.end(),
                                   [](const auto &each) { return each->check() != OPENREG_OK; });
  if (failed == communicators_.end()) {
    return c10d::ErrorType::SUCCESS;
  }
  const auto failure = (*failed)->first_failure();
  if (failure == Communicator::FirstFailure::kTimeout) {
    return c10d::ErrorType::TIMEOUT;
  }
  // Ranks always learn of each other's failures, but with NCCL only with this variable.
  const bool is_remote = failure == Communicator::FirstFailure::kNone && abort_reason_.empty();
  return is_remote && c10d::getCvarBool({"TORCH_NCCL_PROPAGATE_ERROR"}, false)
             ? c10d::ErrorType::REMOTE_ERROR
             : c10d::ErrorType::COMM_ERROR;
}

void ProcessGroupOccl::abort() {
  const std::lock_guard lock(communicators_mutex_);
  abort_reason_ = "the group was aborted";
  for (const auto &communicator : communicators_) {
    FlightWatch::get().remove(communicator);
    communicator->abort("the program called abort()");
  }
}

void ProcessGroupOccl::abort_with(const std::string &reason) {
  const std::lock_guard lock(communicators_mutex_);
  abort_reason_ = reason;
  for (const auto &communicator : communicators_) {
    communicator->abort(reason);
  }
}

void ProcessGroupOccl::registerOnCompletionHook(CompletionHook::Function &&hook) {
  const WithoutGil no_gil;
  const std::lock_guard lock(submit_mutex_);
  TORCH_CHECK_WITH(DistBackendError, completion_hook_ == nullptr, "ProcessGroup", backend_title(),
                   " OnCompletion hook already registered");
  TORCH_CHECK_VALUE(is_timed_, "ProcessGroup", backend_title(),
                    " OnCompletion hook requires recording start and end events which require "
                    "setting TORCH_NCCL_ENABLE_TIMING environment variable.");
  onCompletionHook_ = [](const auto &) {}; // hasHooks() reads this
  completion_hook_ =
      std::make_unique<CompletionHook>(std::move(hook), [this](const std::string &message) {
        abort_with(c10::str("Caught exception on rank ", rank_,
                            " while running onCompletion hook for ProcessGroup", backend_title(),
                            ": ", message, ". Aborting all communicators."));
      });
}

void ProcessGroupOccl::waitForPendingWorks() {
  const WithoutGil no_gil;
  std::vector<SharedEvent> ends;
  {
    const std::lock_guard lock(submit_mutex_);
    for (const auto &[device, connection] : connections_) {
      ends.push_back(connection.collectives.last());
      for (const auto &[key, order] : connection.messages) {
        ends.push_back(order.last());
      }
    }
  }
  for (const auto &end : ends) {
    if (end) {
      wait_quietly(end.get());
    }
  }
  if (completion_hook_) {
    completion_hook_->wait_for_pending();
  }
}

// Waits for this rank's work before it leaves, because other ranks may wait for that work.
void ProcessGroupOccl::shutdown() {
  waitForPendingWorks();
  const WithoutGil no_gil;
  const std::lock_guard lock(submit_mutex_);
  connections_.clear();
  const std::lock_guard lock_communicators(communicators_mutex_);
  communicators_.clear();
  if (abort_reason_.empty()) {
    abort_reason_ = "the group was shut down";
  }
}

} // namespace openreg
