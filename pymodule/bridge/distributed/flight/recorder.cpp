#include "distributed/flight/recorder.h"

#include <c10/util/ApproximateClock.h>
#include <c10/util/thread_name.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <algorithm>
#include <utility>

namespace openreg {

namespace {

constexpr int kDefaultCapacity = 2000; // PyTorch's

// Sets `value` to the larger of itself and `number`; other threads may do the same.
void raise_to(std::atomic<int64_t> &value, int64_t number) {
  auto before = value.load();
  while (before < number && !value.compare_exchange_weak(before, number)) {
  }
}

} // namespace

FlightTensors flight_tensors(const std::vector<at::Tensor> &tensors) {
  FlightTensors facts;
  for (const auto &tensor : tensors) {
    facts.push_back({at::DimVector(tensor.sizes()), tensor.scalar_type()});
  }
  return facts;
}

FlightEntry::FlightEntry(FlightCall call, uint64_t id)
    : call(std::move(call)), id(id), thread(std::this_thread::get_id()),
      thread_name(c10::getThreadName()), created_ns(c10::getTime()) {}

void FlightEntry::start() {
  started_ns_ = c10::getTime();
  if (call.is_timed) {
    raise_to(call.group->started, static_cast<int64_t>(call.number()));
  }
}

void FlightEntry::end(bool succeeded) {
  if (succeeded) {
    completed_ns_ = c10::getTime();
    raise_to(call.group->completed, static_cast<int64_t>(call.number()));
  }
  is_retired_ = true;
}

double FlightEntry::duration_ms() const {
  constexpr double kNsPerMs = 1e6;
  return static_cast<double>(completed_ns_ - started_ns_) / kNsPerMs;
}

FlightRecorder &FlightRecorder::get() {
  static auto &one = *new FlightRecorder;
  return one;
}

FlightRecorder::FlightRecorder()
    : capacity_(static_cast<size_t>(
          std::max(0, c10d::getCvarInt({"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"},
                                       kDefaultCapacity)))) {}

FlightEntryPtr FlightRecorder::add(FlightCall call) {
  if (!is_on()) {
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  groups_.try_emplace(call.group->id, call.group);
  auto record = std::make_shared<FlightEntry>(std::move(call), next_id_++);
  if (ring_.size() < capacity_) {
    ring_.push_back(record);
  } else {
    ring_[next_] = record;
    next_ = (next_ + 1) % capacity_;
  }
  return record;
}

void FlightRecorder::add_group(const FlightGroup &group, std::vector<uint64_t> ranks) {
  if (!is_on()) {
    return;
  }
  const std::lock_guard lock(mutex_);
  for (auto &each : ranks_) {
    if (each.name == group.name && each.description == group.description) {
      each.ranks = std::move(ranks);
      return;
    }
  }
  ranks_.push_back({group.name, group.description, std::move(ranks)});
}

void FlightRecorder::set_library_version(std::string version) {
  library_version_ = std::move(version);
}

void FlightRecorder::reset() {
  std::vector<FlightEntryPtr> old; // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  old.swap(ring_);
  next_ = 0;
  next_id_ = 0;
}

// Oldest first.
std::vector<FlightEntryPtr> FlightRecorder::records(bool only_active) {
  std::vector<FlightEntryPtr> found;
  {
    const std::lock_guard lock(mutex_);
    found.assign(ring_.begin() + static_cast<std::ptrdiff_t>(next_), ring_.end());
    found.insert(found.end(), ring_.begin(), ring_.begin() + static_cast<std::ptrdiff_t>(next_));
  }
  if (only_active) {
    std::erase_if(found, [](const auto &each) { return each->completed_ns() != 0; });
  }
  return found;
}

} // namespace openreg
