// Writes the flight recorder to a file when a communicator fails, as ProcessGroupNCCL does, by
// PyTorch's writer, which a program may have replaced. TORCH_FR_DUMP_TEMP_FILE names the file, and
// TORCH_NCCL_DUMP_ON_TIMEOUT enables it.
//
// All ranks write, including those that wait for nothing: the polling thread checks all
// communicators ten times a second. It also writes on request through the pipe
// TORCH_NCCL_DEBUG_INFO_PIPE_FILE.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "distributed/communicator.h"

namespace openreg {

class FlightWatch {
public:
  // Never destroyed.
  static FlightWatch &get();

  // Watches a communicator until its last owner releases it. `rank` is this process's rank in its
  // world. Does nothing if the recorder or the file is disabled.
  void add(const CommunicatorPtr &communicator, int rank);
  // Stops watching it, because the program itself aborts it.
  void remove(const CommunicatorPtr &communicator);

  // Tells the watch that an operation failed. Returns when the file is written and the other ranks
  // have had a moment to write theirs, because the caller's error may end the whole job. Returns at
  // once if the communicator is not watched.
  void notify_failure(const Communicator &communicator);

private:
  std::chrono::milliseconds poll(bool is_last);
  bool has_new_failure();
  void write();

  std::mutex mutex_;
  std::condition_variable written_;
  std::map<const Communicator *, std::weak_ptr<Communicator>> watched_;
  int rank_ = 0, pipe_ = -1;
  uint64_t writes_ = 0; // after failures
  bool is_polled_ = false, is_over_ = false;
};

} // namespace openreg
