// How operators work on symmetric memory: on the current stream, between two barriers of all ranks.
#pragma once

#include <utility>

#include "distributed/symmetric/memory.h"
#include "streams/inline_guard.h"

namespace openreg {

// Raises for a tensor that is not in symmetric memory.
inline SymmetricLocation require_location(const char *name, const at::Tensor &tensor,
                                          const std::string &group) {
  auto location = find_symmetric_location(tensor, group);
  TORCH_CHECK(location.peers, name, ": input must be allocated with empty_strided_p2p().");
  return location;
}

// Queues `prepare`, a barrier on channel 0, `work`, and a second barrier. Both functions capture
// addresses only; they keep no memory alive. `work` may return a status.
template <class Prepare, class Work>
void queue_between_barriers(const SymmetricPeers &peers, Prepare prepare, Work work) {
  const WithoutGil no_gil;
  queue_on_stream(peers.own->device(), [=, barrier = peers.barrier(0)]() -> openreg_status {
    prepare();
    const auto arrived = wait_for(barrier);
    if (arrived != OPENREG_OK) {
      return arrived;
    }
    const auto done =
        do_work(work); // even if it failed, the other ranks wait for the second barrier
    const auto finished = wait_for(barrier);
    return done == OPENREG_OK ? finished : done;
  });
}

template <class Work> void queue_between_barriers(const SymmetricPeers &peers, Work work) {
  queue_between_barriers(
      peers, [] {}, std::move(work));
}

} // namespace openreg
