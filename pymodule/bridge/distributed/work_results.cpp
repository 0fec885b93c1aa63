#include "distributed/work_results.h"

#include <ATen/core/enum_type.h>
#include <c10/util/thread_name.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace openreg {

namespace {

constexpr std::chrono::milliseconds kLookEvery(10);

bool has_ended(const openreg_event *end, const Outcome &outcome) {
  return openreg_event_query(end) != OPENREG_NOT_READY || outcome.has_failed();
}

c10::IValue result_of(const Outcome &outcome) {
  const auto result = !outcome.has_failed()    ? c10d::WorkResult::SUCCESS
                      : outcome.was_too_late() ? c10d::WorkResult::TIMEOUT
                                               : c10d::WorkResult::COMM_ERROR;
  return static_cast<int64_t>(result);
}

} // namespace

WorkResults &WorkResults::get() {
  static auto &one = *new WorkResults;
  return one;
}

FuturePtr WorkResults::of(SharedEvent end, std::shared_ptr<Outcome> outcome) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::AnyEnumType::get());
  {
    const std::lock_guard lock(mutex_);
    awaited_.push_back({std::move(end), std::move(outcome), future});
    if (!thread_.joinable() && !is_over_) {
      thread_ = std::thread([this] { run(); });
    }
  }
  wake_.notify_all();
  return future;
}

// In a fork there is no thread, and the lock may have been held when it began.
void WorkResults::stop() {
  if (openreg_in_bad_fork()) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void WorkResults::run() {
  c10::setThreadName("openreg results");
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    std::list<Awaited> ended;
    for (auto each = awaited_.begin(); each != awaited_.end();) {
      const auto next = std::next(each);
      if (has_ended(each->end.get(), *each->outcome)) {
        ended.splice(ended.end(), awaited_, each);
      }
      each = next;
    }
    lock.unlock();
    for (const auto &each : ended) { // what waits for it is called here
      each.future->markCompleted(result_of(*each.outcome));
    }
    ended.clear();
    lock.lock();
    if (awaited_.empty()) {
      wake_.wait(lock, [this] { return is_over_ || !awaited_.empty(); });
    } else {
      wake_.wait_for(lock, kLookEvery, [this] { return is_over_; });
    }
  }
}

} // namespace openreg
