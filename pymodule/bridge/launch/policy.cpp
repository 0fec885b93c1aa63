#include "launch/policy.h"

#include <ATen/Parallel.h>
#include <ATen/core/enum_tag.h>
#include <omp.h>

#include <algorithm>
#include <string>

#include "compat/blas_threads.h"
#include "compat/operator_names.h"
#include "launch/kernel_memory.h"
#include "streams/current.h"

namespace openreg {

namespace {

// A launch that takes this many handoffs is queued even if the program waits for it.
constexpr int64_t kHandoffsHidden = 25;

std::atomic<bool> everything{false};

bool launches_block() {
  const openreg_config *config = nullptr;
  check(openreg_config_get(&config));
  return config->launch_blocking;
}

// One bit for each device that has had a long launch.
std::atomic<uint64_t> devices_in_use{0};

int count_devices_in_use() {
  return std::max(1, std::popcount(devices_in_use.load(std::memory_order_relaxed)));
}

void use_device(c10::DeviceIndex device) {
  const auto bit = uint64_t{1} << device;
  if ((devices_in_use.load(std::memory_order_relaxed) & bit) == 0) {
    devices_in_use.fetch_or(bit, std::memory_order_relaxed);
  }
}

// The cores to which a worker is bound: a device's, or all.
class Cores {
public:
  bool operator==(const Cores &) const = default;
  static Cores all() { return Cores(-1); }
  static Cores of(c10::DeviceIndex device) { return Cores(device); }
  int device() const { return device_; } // for openreg_device_bind_thread

private:
  explicit Cores(int device) : device_(device) {}
  int device_;
};

void keep_on(Cores cores) {
  thread_local std::optional<Cores> kept_on;
  if (kept_on != cores) {
    openreg_device_bind_thread(cores.device());
    kept_on = cores;
  }
}

} // namespace

// ---- what may be queued -------------------------------------------------------------------------

bool queues_everything() {
  return everything.load(std::memory_order_relaxed);
}

void set_queues_everything(bool queues) {
  everything.store(queues, std::memory_order_relaxed);
}

bool may_queue() {
  static const bool blocks = launches_block();
  return !blocks && !InlineGuard::any();
}

bool depends_on_values(const c10::OperatorHandle &op) {
  return op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output);
}

// Operators of other libraries may have Python kernels, which a worker cannot run. The shapes of
// the results must not depend on the content of the arguments. aten::index is tagged so, but its
// shapes depend on content only with masks.
bool can_be_queued(const c10::OperatorHandle &op) {
  const std::string &name = op.schema().name();
  return !is_foreign(name) && (!depends_on_values(op) || has_data_dependent_size(name));
}

bool is_idle(c10::DeviceIndex device) {
  return openreg_stream_is_idle(device, current_stream(device));
}

bool is_capturing(c10::DeviceIndex device) {
  return openreg_stream_is_capturing(device, current_stream(device));
}

void raise_in_capture(c10::DeviceIndex device, const std::string &what) {
  check(openreg_capture_refuse(device, current_stream(device), what.c_str()));
  TORCH_INTERNAL_ASSERT(false, "raise_in_capture: the stream does not capture");
}

void LaunchCost::note(int64_t elements, int64_t ns) {
  auto &cost = costs_ns_[place_of(elements)];
  const auto now = static_cast<uint32_t>(std::clamp<int64_t>(ns, 1, UINT32_MAX));
  const auto before = cost.load(std::memory_order_relaxed);
  // The minimum counts at once: the first launch of an operator pays for one-time work.
  cost.store(before == 0 || now < before ? now : before + (now - before) / 8,
             std::memory_order_relaxed);
}

// ---- threads ------------------------------------------------------------------------------------

int share_of_threads(int64_t elements, int threads) {
  return elements < kShortElements ? threads : std::max(1, threads / count_devices_in_use());
}

int threads_inline(int64_t elements) {
  const int threads = at::get_num_threads();
  return InlineGuard::any() ? threads : share_of_threads(elements, threads);
}

// Not at::set_num_threads, which would also change the count for threads that start later.
ThreadCount::ThreadCount(int threads) : before_(at::get_num_threads()) {
  if (threads != before_) {
    omp_set_num_threads(threads);
    blas_before_ = set_blas_threads(threads);
  }
}

ThreadCount::~ThreadCount() {
  if (blas_before_.has_value()) {
    omp_set_num_threads(before_);
    set_blas_threads(*blas_before_);
  }
}

void keep_on_share_of_cores(c10::DeviceIndex device) {
  keep_on(count_devices_in_use() == 1 ? Cores::all() : Cores::of(device));
}

void keep_on_all_cores() {
  keep_on(Cores::all());
}

// ---- the decision -------------------------------------------------------------------------------

LongLaunch::LongLaunch(LaunchCost &cost, int64_t elements, c10::DeviceIndex device)
    : cost_(cost), elements_(elements) {
  if (InlineGuard::any()) { // within another launch
    queued_ = false;
    return;
  }
  use_device(device);
  if (may_queue()) {
    if (queues_everything()) {
      return;
    }
    const auto work_ns = cost.of(elements);
    sample_.emplace(device, current_stream(device), work_ns);
    queued_ = work_ns == 0 || work_ns >= kHandoffsHidden * handoff_ns() ||
              (work_ns >= kQueueingNs && sample_->prefers_queueing());
  } else {
    queued_ = false;
  }
}

LongLaunch::~LongLaunch() {
  if (!queued_ && sample_.has_value()) {
    cost_.note(elements_, now_ns() - sample_->began_ns());
  }
}

} // namespace openreg
