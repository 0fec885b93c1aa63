// Symmetric memory of the ranks of a group: a rank's own allocation, and those of all ranks at
// addresses of this process.
//
// An allocation is memory directly from the device, as cuMemCreate gives it: not in the allocator's
// statistics, and in multiples of 2 MiB. It begins with a signal pad, and the buffer follows. The
// memory lives as long as its owner, or any rank that did the rendezvous, holds it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "distributed/symmetric/signals.h"

namespace openreg {

class SymmetricAllocation {
public:
  // Allocates `bytes`, and a zeroed signal pad of PyTorch's current signal pad size.
  SymmetricAllocation(c10::DeviceIndex device, size_t bytes);
  // Waits for the device, as cudaFree does. Memory that other ranks still use is freed later.
  ~SymmetricAllocation();
  SymmetricAllocation(const SymmetricAllocation &) = delete;
  SymmetricAllocation &operator=(const SymmetricAllocation &) = delete;

  c10::DeviceIndex device() const { return device_; }
  size_t bytes() const { return bytes_; }
  size_t pad_bytes() const { return pad_bytes_; }
  void *base() const { return base_; }
  void *buffer() const { return static_cast<char *>(base_) + buffer_offset(pad_bytes_); }

  // The offset of the buffer from the base, in bytes.
  static size_t buffer_offset(size_t pad_bytes);

  // Exports a handle for one other rank.
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
  std::vector<void *> buffers, pads; // addresses, by rank
  std::vector<PeerProcess> processes;
  std::vector<std::shared_ptr<void>> imports;   // keep the ranks' memory alive
  at::Tensor buffers_on_device, pads_on_device; // the addresses in device memory

  // The swaps by which this rank sends a signal to a peer, and waits for one. Raise for an invalid
  // channel or rank.
  SignalCas put_signal(int peer, int channel) const;
  SignalCas wait_signal(int peer, int channel) const;
  // Sends a signal to all other ranks and waits for one from each.
  SignalSequence barrier(int channel) const;

  // The kernel views of all ranks' buffers at an offset.
  std::vector<char *> views_at(size_t offset) const;

private:
  // The address of the word for signals from `source` in the pad of rank `pad`.
  void *word(int pad, int source, int channel) const;
};

using SymmetricPeersPtr = std::shared_ptr<SymmetricPeers>;

// Exchanges the allocations of all ranks of a group. All ranks call it, and wait for each other
// within the timeout of the group's store. Raises DistBackendError on all ranks for allocations of
// different sizes, ranks on several hosts, ranks on one device, and ranks that did not arrive.
SymmetricPeersPtr rendezvous_group(const SymmetricAllocationPtr &own, const std::string &group);

} // namespace openreg
