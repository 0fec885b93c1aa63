#include "distributed/work_results.h"

#include <ATen/core/enum_type.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <utility>

#include "distributed/polling_thread.h"

namespace openreg {

namespace {

constexpr std::chrono::milliseconds kResultInterval(10);

bool has_ended(const openreg_event *end, const Outcome &outcome) {
  return openreg_event_query(end) != OPENREG_NOT_READY || outcome.has_failed();
}

c10::IValue result_of(const Outcome &outcome) {
  const auto result = !outcome.has_failed()     ? c10d::WorkResult::SUCCESS
                      : outcome.has_timed_out() ? c10d::WorkResult::TIMEOUT
                                                : c10d::WorkResult::COMM_ERROR;
  return static_cast<int64_t>(result);
}

} // namespace

WorkResults &WorkResults::get() {
  static auto &one = *new WorkResults;
  return one;
}

FuturePtr WorkResults::add(SharedEvent end, std::shared_ptr<Outcome> outcome) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::AnyEnumType::get());
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    pending_.push_back({std::move(end), std::move(outcome), future});
    is_first = !std::exchange(is_polled_, true);
  }
  if (is_first) {
    PollingThread::get().add(
        [this](bool is_last) { return is_last ? PollingThread::kIdle : poll(); });
  } else {
    PollingThread::get().wake();
  }
  return future;
}

std::chrono::milliseconds WorkResults::poll() {
  std::list<Pending> ended;
  std::unique_lock lock(mutex_);
  for (auto each = pending_.begin(); each != pending_.end();) {
    const auto next = std::next(each);
    if (has_ended(each->end.get(), *each->outcome)) {
      ended.splice(ended.end(), pending_, each);
    }
    each = next;
  }
  lock.unlock();
  for (const auto &each : ended) { // runs the future's callbacks
    each.future->markCompleted(result_of(*each.outcome));
  }
  ended.clear();
  lock.lock();
  return pending_.empty() ? PollingThread::kIdle : kResultInterval;
}

} // namespace openreg
