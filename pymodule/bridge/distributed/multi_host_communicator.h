// Collectives of ranks on several hosts: within a host by the layer `collectives`, between hosts by
// Gloo, which only moves bytes.
//
// Ranks with the same index on their hosts are counterparts. What is reduced or broadcast is cut
// into slices, one for each index that all hosts have: ranks of a host reduce or have slice i at
// rank i, counterparts exchange it, ranks of a host gather the slices. So every byte crosses from
// host to host once, and all ranks of a host work at it.
//
// Reductions are done in the order of ranks within a host, then in the order of hosts: the same
// bits on all ranks and in all runs, but other ones than on one host. 16-bit floats are rounded
// once a host, and once at the end.
//
// What ranks of other hosts call is not compared, and who of them was killed is not named: Gloo
// says that a connection was closed, or that nothing came in time. A rank that waits for another
// host hears within a tenth of a second that its own communicator was ended; in messages it does
// not hear it before their time is over.
#pragma once

#include "compat/process_group_gloo.h"

#include <string>
#include <vector>

#include "distributed/communicator.h"
#include "distributed/host_map.h"

namespace openreg {

class SeveralHosts final : public Communicator {
public:
  // `local` joins the ranks of this host, each with its index there. All ranks make one at the same
  // time, with a store of their own.
  SeveralHosts(const StorePtr &store, HostMap map, CommunicatorPtr local, c10::DeviceIndex device,
               std::chrono::milliseconds timeout);
  ~SeveralHosts() override;

  openreg_status run(const openreg_collective &collective) override;
  openreg_status exchange(const std::vector<openreg_message> &messages,
                          uint64_t timeout_ns) override;
  // Nothing is done in two steps.
  openreg_status begin(const openreg_collective &) override { return OPENREG_NOT_READY; }
  openreg_status finish(uint64_t) override { return OPENREG_NOT_READY; }
  bool has_cores() const override { return local_->has_cores(); }

  openreg_status check() const override { return local_->check(); }
  void abort(const std::string &why) override { local_->abort(why); }

private:
  struct Call;   // a collective, and what its parts are
  struct Remote; // a message to a rank of another host, or from one

  void all_reduce(const Call &call, openreg_part input, openreg_part output);
  void reduce(const Call &call);
  void reduce_scatter(const Call &call);
  void reduce_scatter_piece(const Call &call, size_t begin, size_t end);
  void reduce_scatter_to_uneven_hosts(const Call &call);
  void broadcast(const Call &call);
  void all_gather(const Call &call);
  void move(const Call &call);
  void barrier(const Call &call);

  // One of the local communicator, with the call's dtype and time.
  void run_locally(const Call &call, openreg_collective_kind kind,
                   const std::vector<openreg_part> &inputs,
                   const std::vector<openreg_part> &outputs, int root = 0) const;
  // Slices of a part for all ranks of this host: empty ones for those that not every host has.
  std::vector<openreg_part> slices_of(const Call &call, openreg_part part) const;
  std::vector<openreg_part> of_host(const std::vector<openreg_part> &parts, int host) const;

  // Among counterparts; for ranks that have some.
  bool has_counterparts() const { return across_ != nullptr; }
  void reduce_across(const Call &call, openreg_part slice) const;
  void reduce_hosts(const Call &call, const std::vector<at::Tensor> &partial,
                    openreg_part result) const;
  void broadcast_across(const Call &call, openreg_part part, int host) const;
  void finish(const c10::intrusive_ptr<c10d::Work> &work, std::chrono::milliseconds timeout) const;

  template <class Work>
  void transfer(const std::vector<Remote> &remotes, std::chrono::milliseconds timeout, int tag,
                Work meanwhile) const;

  template <class Work> openreg_status guard(Work work) const;

  HostMap map_;
  CommunicatorPtr local_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> world_, across_;
  at::Tensor scratch_; // device memory, for what is no rank's result
};

} // namespace openreg
