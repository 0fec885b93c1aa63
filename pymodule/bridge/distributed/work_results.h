// What became of work, for who asked to be told (Work.get_future_result): a thread looks every few
// milliseconds, for streams' workers do not call Python. It is there when it is first needed.
#pragma once

#include <ATen/core/ivalue.h>

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "distributed/operation.h"

namespace openreg {

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

class WorkResults {
public:
  // Never destroyed.
  static WorkResults &get();

  // The number of a c10d::WorkResult, when work that `end` was recorded behind has ended.
  FuturePtr of(SharedEvent end, std::shared_ptr<Outcome> outcome);

  // At the end of the process.
  void stop();

private:
  struct Awaited {
    SharedEvent end;
    std::shared_ptr<Outcome> outcome;
    FuturePtr future;
  };
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::list<Awaited> awaited_;
  std::thread thread_;
  bool is_over_ = false;
};

} // namespace openreg
