// Extra time for a group's next calls, until the first of them has ended: `_add_ephemeral_timeout`.
#pragma once

#include <chrono>
#include <mutex>
#include <utility>

namespace openreg {

class EphemeralTimeout {
public:
  using Milliseconds = std::chrono::milliseconds;

  void add(Milliseconds time) {
    const std::lock_guard lock(mutex_);
    added_ += time;
  }

  struct Share {
    Milliseconds time;  // for a call that is queued now
    Milliseconds owned; // the part that ends with this call
  };
  Share take() {
    const std::lock_guard lock(mutex_);
    return {added_, added_ - std::exchange(owned_, added_)};
  }
  void end(Milliseconds owned) {
    const std::lock_guard lock(mutex_);
    added_ -= owned;
    owned_ -= owned;
  }

private:
  std::mutex mutex_;
  Milliseconds added_{0}, owned_{0}; // owned_: the part that unfinished calls own
};

} // namespace openreg
