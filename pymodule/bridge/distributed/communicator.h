// What joins the ranks of a group on their devices: to a group of PyTorch what a communicator of
// NCCL is to its. How a collective reaches all ranks is the class's own affair: `Communicator` is
// all that the group knows, and `connect` the one place that decides which it gets.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "collectives/collectives.h"
#include "core/status.h"
#include "distributed/same_process_ranks.h"

namespace openreg {

inline uint64_t in_ns(std::chrono::milliseconds time) {
  return static_cast<uint64_t>(std::chrono::nanoseconds(time).count());
}

class Communicator {
public:
  Communicator() = default;
  virtual ~Communicator() = default;
  Communicator(const Communicator &) = delete;
  Communicator &operator=(const Communicator &) = delete;

  // These may sleep, take neither the GIL nor a turn, and are called on streams' workers.
  virtual openreg_status run(const openreg_collective &collective) = 0;
  virtual openreg_status exchange(const std::vector<openreg_message> &messages,
                                  uint64_t timeout_ns) = 0;

  // A collective in two steps, as openreg_comm_begin and openreg_comm_finish. What cannot do so
  // answers NOT_READY to `begin`, and nothing has begun.
  virtual openreg_status begin(const openreg_collective &collective) = 0;
  virtual openreg_status finish(uint64_t patience_ns) = 0;
  // Whether this process has a core for each rank.
  virtual bool has_cores() const = 0;

  // OK, or COMMUNICATION_FAILURE and its sentence when it was ended.
  virtual openreg_status check() const = 0;
  // Ends it for all ranks; calls that wait return.
  virtual void abort(const std::string &why) = 0;

  // A collective is queued behind what the current stream has to do; `waits`: it will wait for it.
  // Raises, and ends the communicator, where that wait would be for itself (neighbours.h). Returns
  // the collective's number for `wait`, which the current stream is about to do.
  uint64_t call(c10::DeviceIndex device, bool waits);
  void wait(uint64_t number, c10::DeviceIndex device);

protected:
  std::shared_ptr<Neighbours> neighbours_; // null: all ranks have devices of their own

private:
  uint64_t called_ = 0;
};

using CommunicatorPtr = std::shared_ptr<Communicator>;

struct Connecting {
  c10::intrusive_ptr<c10d::Store>
      store; // of the group, in which `key` is this communicator's alone
  std::string key;
  int rank, size;
  c10::DeviceIndex device;
  std::string name;            // for sentences
  std::vector<int> rank_names; // what ranks are called in sentences; empty: as they are
  std::chrono::milliseconds timeout;
};

// Whether two ranks may have one device: OPENREG_SHARE_DEVICE.
bool may_share_device();

// Waits until all ranks have come. Raises DistBackendError when they do not.
CommunicatorPtr connect(const Connecting &how);

// The same by an id that came another way than by a store.
CommunicatorPtr connect(const openreg_comm_id &id, const Connecting &how);
// Ranks of one process among themselves, each with a device.
std::vector<CommunicatorPtr> connect_all(const std::vector<int> &devices);

// At the end of the process: ends those that somebody waits in.
void abort_communicators();

} // namespace openreg
