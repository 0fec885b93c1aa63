// Which ranks of a group are on one host: those that can reach each other's memory. That is proved,
// by opening a segment of it (collectives.h), not guessed from names and addresses. Ranks with
// different values of OPENREG_HOST count as on different hosts nevertheless.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <vector>

#include "collectives/collectives.h"

namespace openreg {

struct HostMap {
  std::vector<std::vector<int>> ranks; // of each host, ascending; hosts by their first ranks
  std::vector<int> host_of;            // of each rank
  std::vector<int> index_of;           // of each rank, among those of its host
  int rank = 0, host = 0, index = 0;   // of this rank

  int host_count() const { return static_cast<int>(ranks.size()); }
  const std::vector<int> &neighbours() const { return ranks[static_cast<size_t>(host)]; }

  // As many ranks as every host has.
  int width() const;
  // Whether every host has as many.
  bool is_even() const;
};

using StorePtr = c10::intrusive_ptr<c10d::Store>;

// All ranks call it with a store of their own, which is as it was when all have called
// `forget_hosts`. Raises DistBackendError, naming the ranks that did not come in time.
HostMap find_hosts(const StorePtr &store, int rank, int size, std::chrono::milliseconds timeout);

// The id of a segment for the ranks of this host, which the first of them creates.
openreg_comm_id share_id(const StorePtr &store, const HostMap &map,
                         std::chrono::milliseconds timeout);

// When all ranks have what they need from the store.
void forget_hosts(const StorePtr &store, const HostMap &map);

} // namespace openreg
