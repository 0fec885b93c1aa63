// What is done with the flight recorder when a group fails: it is written to a file, by PyTorch's
// writer, which a program may have replaced (TORCH_FR_DUMP_TEMP_FILE, and
// TORCH_NCCL_DUMP_ON_TIMEOUT says whether). All ranks do so, also those that wait for nothing: a
// thread looks at all communicators, ten times a second. It also writes when it is asked to through
// the pipe TORCH_NCCL_DEBUG_INFO_PIPE_FILE.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "distributed/communicator.h"

namespace openreg {

class FlightWatch {
public:
  // Never destroyed.
  static FlightWatch &get();

  // From now on, until the last one who has it lets go of it. `rank` is this process's in its
  // world. Does nothing where nothing is recorded or written.
  void add(const CommunicatorPtr &communicator, int rank);
  // No more: the program itself ends it.
  void remove(const CommunicatorPtr &communicator);

  // It failed: returns when that is written and the other ranks had a moment to do the same, for
  // who is told of it may end the whole job. At once if it is not watched.
  void tell(const Communicator &communicator);

  // At the end of the process: looks a last time, and ends the thread.
  void stop();

private:
  void run();
  bool has_new_failure();
  void write();

  std::mutex mutex_;
  std::condition_variable wake_, written_;
  std::map<const Communicator *, std::weak_ptr<Communicator>> watched_;
  std::thread thread_;
  int rank_ = 0, pipe_ = -1;
  uint64_t writes_ = 0; // after failures
  bool is_called_ = false, is_over_ = false;
};

} // namespace openreg
