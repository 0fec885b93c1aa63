// The one thread of this process that polls for events of collectives: failed communicators
// (FlightWatch) and finished work (WorkResults). Streams' workers do neither, because they must not
// call Python or write files. The thread starts with the first job.
//
// Jobs run one after the other, as in the watchdog of PyTorch's ProcessGroupNCCL: a job that blocks
// delays the others.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace openreg {

class PollingThread {
public:
  // Never destroyed: other threads may outlive static objects.
  static PollingThread &get();

  // Polls once and returns how long the thread may sleep. `is_last` is true for the last call, at
  // the end of the process.
  using Job = std::function<std::chrono::milliseconds(bool is_last)>;
  static constexpr std::chrono::milliseconds kIdle = std::chrono::hours(1);

  // Runs the job from now on. Does nothing and returns false when the thread was stopped.
  bool add(Job job);

  // Makes the thread poll all jobs now. Any thread.
  void wake();

  // Polls a last time and ends the thread. The caller does not hold the GIL, which a job may need.
  void stop();

private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Job> jobs_;
  std::thread thread_;
  bool is_woken_ = false, is_over_ = false;
};

} // namespace openreg
