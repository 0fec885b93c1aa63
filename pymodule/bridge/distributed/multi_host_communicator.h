// Collectives of ranks on several hosts. Within a host the C layer `collectives` runs them; between
// hosts Gloo moves bytes.
//
// Ranks with the same index on their hosts are counterparts. A reduction or broadcast is cut into
// slices, one for each index that all hosts have. The ranks of a host reduce slice i to rank i (or
// have it there), counterparts exchange it, and the ranks of a host gather the slices. So every
// byte crosses between hosts once, and all ranks of a host share the work.
//
// Reductions run in rank order within a host, and then in the order of hosts. Results are bitwise
// equal on all ranks and in all runs, but differ from those on one host. 16-bit floats are rounded
// once on each host and once at the end.
//
// Calls of ranks on different hosts are not compared, and a killed rank of another host is not
// named: Gloo reports a closed connection or a timeout. A rank that waits for another host learns
// within a tenth of a second that its own host's communicator was aborted; in messages it learns
// only at its timeout.
#pragma once

#include "compat/process_group_gloo.h"

#include <string>
#include <vector>

#include "distributed/communicator.h"
#include "distributed/host_map.h"

namespace openreg {

class MultiHostCommunicator final : public Communicator {
public:
  // `local` is the communicator of this host's ranks, numbered by their index there. All ranks
  // construct this object together, with a store for it alone.
  MultiHostCommunicator(const StorePtr &store, HostMap map, CommunicatorPtr local,
                        c10::DeviceIndex device, std::chrono::milliseconds timeout);
  ~MultiHostCommunicator() override;

  openreg_status run(const openreg_collective &collective) override;
  openreg_status exchange(const std::vector<openreg_message> &messages,
                          uint64_t timeout_ns) override;
  // Does not support two steps.
  openreg_status begin(const openreg_collective &) override { return OPENREG_NOT_READY; }
  openreg_status finish(uint64_t) override { return OPENREG_NOT_READY; }
  bool has_core_per_rank() const override { return local_->has_core_per_rank(); }

  openreg_status check() const override { return local_->check(); }
  void abort(const std::string &why) override { local_->abort(why); }

private:
  struct Call;   // a collective and its buffers
  struct Remote; // a message to or from a rank of another host

  void all_reduce(const Call &call, openreg_comm_buffer input, openreg_comm_buffer output);
  void reduce(const Call &call);
  void reduce_scatter(const Call &call);
  void reduce_scatter_piece(const Call &call, size_t begin, size_t end);
  void reduce_scatter_to_uneven_hosts(const Call &call);
  void broadcast(const Call &call);
  void all_gather(const Call &call);
  void move(const Call &call);
  void barrier(const Call &call);

  // Runs a collective on the local communicator, with the call's dtype and timeout.
  void run_locally(const Call &call, openreg_collective_kind kind,
                   const std::vector<openreg_comm_buffer> &inputs,
                   const std::vector<openreg_comm_buffer> &outputs, int root = 0) const;
  // The slices of a buffer for all ranks of this host; empty for indices that not every host has.
  std::vector<openreg_comm_buffer> slices_of(const Call &call, openreg_comm_buffer buffer) const;
  std::vector<openreg_comm_buffer> of_host(const std::vector<openreg_comm_buffer> &parts,
                                           int host) const;

  // Between counterparts; only for ranks that have some.
  bool has_counterparts() const { return across_ != nullptr; }
  void reduce_across(const Call &call, openreg_comm_buffer slice) const;
  void reduce_hosts(const Call &call, const std::vector<at::Tensor> &partial,
                    openreg_comm_buffer result) const;
  void broadcast_across(const Call &call, openreg_comm_buffer buffer, int host) const;
  void finish(const c10::intrusive_ptr<c10d::Work> &work, std::chrono::milliseconds timeout) const;

  template <class Work>
  void transfer(const std::vector<Remote> &remotes, std::chrono::milliseconds timeout, int tag,
                Work meanwhile) const;

  template <class Work> openreg_status guard(Work work) const;

  HostMap map_;
  CommunicatorPtr local_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> world_, across_;
  at::Tensor scratch_; // device memory for intermediate results
};

} // namespace openreg
