// The futures of Work.get_future_result(): how each work ended. Streams' workers cannot complete
// them, because their callbacks may call Python; the polling thread does.
#pragma once

#include <ATen/core/ivalue.h>

#include <list>
#include <memory>
#include <mutex>

#include "distributed/operation.h"

namespace openreg {

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

class WorkResults {
public:
  // Never destroyed.
  static WorkResults &get();

  // A future for the number of a c10d::WorkResult. It completes when the work that `end` was
  // recorded behind has ended.
  FuturePtr add(SharedEvent end, std::shared_ptr<Outcome> outcome);

private:
  struct Pending {
    SharedEvent end;
    std::shared_ptr<Outcome> outcome;
    FuturePtr future;
  };
  std::chrono::milliseconds poll();

  std::mutex mutex_;
  std::list<Pending> pending_;
  bool is_polled_ = false;
};

} // namespace openreg
