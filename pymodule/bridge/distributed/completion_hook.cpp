#include "distributed/completion_hook.h"

#include <c10/util/thread_name.h>

#include <exception>
#include <utility>

#include "compat/symbol_versions.h" // std::condition_variable::wait

namespace openreg {

namespace {

constexpr std::chrono::milliseconds kHookInterval(2);

bool has_ended(const CompletionHook::Pending &work) {
  return work.outcome->has_failed() || openreg_event_query(work.end.get()) != OPENREG_NOT_READY;
}

} // namespace

CompletionHook::CompletionHook(Function function, OnFailure on_failure)
    : function_(std::move(function)), on_failure_(std::move(on_failure)),
      thread_([this] { run(); }) {}

CompletionHook::~CompletionHook() {
  if (openreg_in_bad_fork()) { // the thread is the parent's
    thread_.detach();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CompletionHook::add(Pending work) {
  {
    const std::lock_guard lock(mutex_);
    pending_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void CompletionHook::wait_for_pending() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return pending_.empty() || is_over_; });
}

// A failed work is not reported: its group fails.
void CompletionHook::report(const Pending &work) {
  double milliseconds = 0;
  if (has_failed_ || work.outcome->has_failed() ||
      openreg_event_elapsed_ms(work.start.get(), work.end.get(), &milliseconds) != OPENREG_OK) {
    return;
  }
  try {
    function_(std::make_shared<c10d::WorkInfo>(
        work.type, work.number, work.queued, std::chrono::steady_clock::now(),
        std::chrono::duration<float, std::milli>(static_cast<float>(milliseconds))));
  } catch (const std::exception &error) {
    has_failed_ = true;
    on_failure_(error.what());
  }
}

void CompletionHook::run() {
  c10::setThreadName("openreg hooks");
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    if (pending_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto &work = pending_.front(); // others only append, which keeps references valid
    if (!has_ended(work)) {
      changed_.wait_for(lock, kHookInterval);
      continue;
    }
    lock.unlock();
    report(work);
    lock.lock();
    pending_.pop_front();
    changed_.notify_all();
  }
}

} // namespace openreg
