// Finds out which ranks of a group are on one host: those that can reach each other's memory. A
// rank proves that by opening a control segment of the other (collectives.h); names and addresses
// decide nothing. Ranks with different values of OPENREG_HOST count as on different hosts.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <vector>

#include "collectives/collectives.h"

namespace openreg {

struct HostMap {
  // The ranks of each host, ascending. Hosts are in the order of their first ranks.
  std::vector<std::vector<int>> ranks;
  std::vector<int> host_of;          // by rank
  std::vector<int> index_of;         // by rank: its index among the ranks of its host
  int rank = 0, host = 0, index = 0; // of this rank

  int host_count() const { return static_cast<int>(ranks.size()); }
  const std::vector<int> &local_ranks() const { return ranks[static_cast<size_t>(host)]; }

  // The number of ranks that every host has at least.
  int min_ranks_per_host() const;
  // Whether all hosts have the same number of ranks.
  bool is_even() const;
};

using StorePtr = c10::intrusive_ptr<c10d::Store>;

// All ranks call this with a store for this purpose alone. Its keys are gone when all ranks have
// called delete_host_keys(). Raises DistBackendError that names the ranks that did not arrive in
// time.
HostMap map_hosts(const StorePtr &store, int rank, int size, std::chrono::milliseconds timeout);

// The id of a communicator for the ranks of this host. The first of these ranks creates it.
openreg_comm_id share_comm_id(const StorePtr &store, const HostMap &map,
                              std::chrono::milliseconds timeout);

// Deletes this rank's keys. Call it when all ranks have read the store.
void delete_host_keys(const StorePtr &store, const HostMap &map);

} // namespace openreg
