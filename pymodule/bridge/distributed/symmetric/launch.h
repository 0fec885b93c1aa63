// How operators work on symmetric memory: on the current stream, between two meetings of all ranks.
#pragma once

#include <utility>

#include "distributed/symmetric/memory.h"
#include "streams/inline_guard.h"

namespace openreg {

// Raises for a tensor that is not in symmetric memory.
inline SymmetricPlace require_place(const char *name, const at::Tensor &tensor,
                                    const std::string &group) {
  auto place = find_symmetric_place(tensor, group);
  TORCH_CHECK(place.peers, name, ": input must be allocated with empty_strided_p2p().");
  return place;
}

// Queues `prepare`, a meeting by channel 0, `work`, and another meeting. Both know addresses, and
// `work` may answer a status.
template <class Prepare, class Work>
void queue_between_barriers(const SymmetricPeers &peers, Prepare prepare, Work work) {
  const WithoutGil no_gil;
  queue_on_stream(peers.own->device(), [=, barrier = peers.barrier(0)]() -> openreg_status {
    prepare();
    const auto met = wait_for(barrier);
    if (met != OPENREG_OK) {
      return met;
    }
    const auto done = do_work(work); // whatever came of it, the others go on
    const auto parted = wait_for(barrier);
    return done == OPENREG_OK ? parted : done;
  });
}

template <class Work> void queue_between_barriers(const SymmetricPeers &peers, Work work) {
  queue_between_barriers(
      peers, [] {}, std::move(work));
}

} // namespace openreg
