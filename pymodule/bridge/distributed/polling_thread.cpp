#include "distributed/polling_thread.h"

#include <c10/util/thread_name.h>

#include <algorithm>
#include <utility>

#include "core/status.h"

namespace openreg {

PollingThread &PollingThread::get() {
  static auto &one = *new PollingThread;
  return one;
}

bool PollingThread::add(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (is_over_) {
      return false;
    }
    jobs_.push_back(std::move(job));
    is_woken_ = true;
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { run(); });
    }
  }
  wake_.notify_all();
  return true;
}

void PollingThread::wake() {
  {
    const std::lock_guard lock(mutex_);
    is_woken_ = true;
  }
  wake_.notify_all();
}

// A forked child has no thread, and the lock may have been held at the time of the fork.
void PollingThread::stop() {
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

void PollingThread::run() {
  c10::setThreadName("openreg polling");
  auto pause = kIdle;
  std::unique_lock lock(mutex_);
  for (bool is_last = false; !is_last;) {
    wake_.wait_for(lock, pause, [this] { return is_woken_ || is_over_; });
    is_woken_ = false;
    is_last = is_over_;
    const auto jobs = jobs_;
    lock.unlock();
    pause = kIdle;
    for (const auto &job : jobs) {
      pause = std::min(pause, job(is_last));
    }
    lock.lock();
  }
}

} // namespace openreg
