// Symmetric memory as ranks have it: an allocation of one's own, and those of all others of a
// group, by addresses of this process.
//
// An allocation is memory straight from the device, as cuMemCreate gives it: in no statistic, 2 MiB
// or multiples. A signal pad is first, then the buffer. The memory lives as long as its owner, or
// any rank that met it, has it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "distributed/symmetric/signals.h"

namespace openreg {

class SymmetricAllocation {
public:
  // With room for `bytes`, and a pad of the size that is set now, which is zero.
  SymmetricAllocation(c10::DeviceIndex device, size_t bytes);
  // Waits for the device, as cudaFree does. What other ranks still have is given back later.
  ~SymmetricAllocation();
  SymmetricAllocation(const SymmetricAllocation &) = delete;
  SymmetricAllocation &operator=(const SymmetricAllocation &) = delete;

  c10::DeviceIndex device() const { return device_; }
  size_t bytes() const { return bytes_; }
  size_t pad_bytes() const { return pad_bytes_; }
  void *base() const { return base_; }
  void *buffer() const { return static_cast<char *>(base_) + buffer_offset(pad_bytes_); }

  // Where the buffer is, from the base.
  static size_t buffer_offset(size_t pad_bytes);

  // A handle for one other rank.
  openreg_ipc_handle share();

private:
  c10::DeviceIndex device_;
  size_t bytes_, pad_bytes_;
  void *base_ = nullptr;
  bool is_shared_ = false;
};

using SymmetricAllocationPtr = std::shared_ptr<SymmetricAllocation>;

class SymmetricPeers {
public:
  std::string group;
  int rank = 0, size = 0;
  SymmetricAllocationPtr own;
  std::vector<void *> buffers, pads; // of all ranks
  std::vector<PeerProcess> processes;
  std::vector<std::shared_ptr<void>> kept;      // their memory
  at::Tensor buffers_on_device, pads_on_device; // their addresses

  // What `rank` does to signal others, and to wait for them. Raises for a channel or a rank that
  // there is not.
  Flip put(int peer, int channel) const;
  Flip take(int peer, int channel) const;
  // To all others and from all.
  Flips barrier(int channel) const;

  // The kernel's view of what all ranks have so far behind their buffers' beginning.
  std::vector<char *> views_at(size_t offset) const;

private:
  // The word for signals of `source` in the pad of another rank.
  void *word(int pad, int source, int channel) const;
};

using SymmetricPeersPtr = std::shared_ptr<SymmetricPeers>;

// All ranks of the group call it, and wait for each other for the time of the group's store. Raises
// DistBackendError, on all ranks: for allocations that differ, ranks on several hosts, ranks on one
// device, and ranks that did not come.
SymmetricPeersPtr meet(const SymmetricAllocationPtr &own, const std::string &group);

} // namespace openreg
