// A function of the program that a process group calls after each of its works, in the order of
// the calls, on a thread of its own (ProcessGroup._register_on_completion_hook).
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "distributed/operation.h"

namespace openreg {

class CompletionHook {
public:
  using Function = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;
  using OnFailure = std::function<void(const std::string &message)>;

  // `on_failure` is called once, with the message of the exception that `function` raised. After
  // that no work is reported.
  CompletionHook(Function function, OnFailure on_failure);

  // Does not wait for pending works. The caller does not hold the GIL, which the function may need.
  ~CompletionHook();

  CompletionHook(const CompletionHook &) = delete;
  CompletionHook &operator=(const CompletionHook &) = delete;

  // A work that was queued. The events are those before and behind it, and have times.
  struct Pending {
    c10d::OpType type;
    uint64_t number;
    std::chrono::steady_clock::time_point queued;
    SharedEvent start, end;
    std::shared_ptr<Outcome> outcome;
  };
  void add(Pending work);

  // Waits until each work was reported or has failed. The caller does not hold the GIL.
  void wait_for_pending();

private:
  void run();
  void report(const Pending &work);

  const Function function_;
  const OnFailure on_failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Pending> pending_; // the first one stays here while it is reported
  bool is_over_ = false, has_failed_ = false;
  std::thread thread_;
};

} // namespace openreg
