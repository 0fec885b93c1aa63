// A communicator joins the ranks of a process group on their devices, as an NCCL communicator does.
// Process groups know only the class Communicator. The function connect() decides which kind they
// get: one for ranks of one host, or one for several hosts.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/collectives.h"
#include "core/status.h"
#include "distributed/nccl_memory.h"
#include "distributed/same_process_ranks.h"

namespace openreg {

inline uint64_t to_ns(std::chrono::milliseconds time) {
  return static_cast<uint64_t>(std::chrono::nanoseconds(time).count());
}

class Communicator {
public:
  Communicator() = default;
  virtual ~Communicator() = default;
  Communicator(const Communicator &) = delete;
  Communicator &operator=(const Communicator &) = delete;

  // These may sleep. They take neither the GIL nor an inline guard, and run on streams' workers.
  virtual openreg_status run(const openreg_collective &collective) = 0;
  virtual openreg_status exchange(const std::vector<openreg_message> &messages,
                                  uint64_t timeout_ns) = 0;

  // A collective in two steps, as openreg_comm_begin and openreg_comm_finish. A communicator
  // without that returns NOT_READY from `begin`, and nothing has begun.
  virtual openreg_status begin(const openreg_collective &collective) = 0;
  virtual openreg_status finish(uint64_t patience_ns) = 0;
  // Whether this process may use a core for each rank.
  virtual bool has_core_per_rank() const = 0;

  // OK, or COMMUNICATION_FAILURE with the message when it was aborted.
  virtual openreg_status check() const = 0;
  // Aborts it for all ranks; waiting calls return.
  virtual void abort(const std::string &why) = 0;

  // How an operation of this rank failed first. Any thread may call both.
  enum class FirstFailure { kNone, kTimeout, kOther };
  void note_failure(FirstFailure failure) {
    auto none = FirstFailure::kNone;
    first_failure_.compare_exchange_strong(none, failure);
  }
  FirstFailure first_failure() const { return first_failure_.load(); }

  // Call when a collective is launched behind the current stream's work; `waits`: the current
  // stream will wait for it. If that would be a deadlock (same_process_ranks.h), aborts the
  // communicator and raises. Returns the collective's number for note_wait().
  uint64_t note_call(c10::DeviceIndex device, bool waits);
  // Call before the current stream waits for that collective.
  void note_wait(uint64_t number, c10::DeviceIndex device);

  using Memory = std::shared_ptr<NcclMemory>;
  void set_memory(Memory memory) { memory_ = std::move(memory); }
  const Memory &memory() const { return memory_; }

protected:
  std::shared_ptr<SameProcessRanks> same_process_ranks_; // null: each rank has its own device

private:
  uint64_t called_ = 0;
  std::atomic<FirstFailure> first_failure_{FirstFailure::kNone};
  Memory memory_;
};

using CommunicatorPtr = std::shared_ptr<Communicator>;

struct ConnectOptions {
  c10::intrusive_ptr<c10d::Store> store; // of the group
  std::string key;                       // a prefix in the store for this communicator alone
  int rank, size;
  c10::DeviceIndex device;
  std::string name;            // for messages
  std::vector<int> rank_names; // rank numbers to show in messages; empty: 0 to size - 1
  std::chrono::milliseconds timeout;
  bool is_represented = false; // one rank stands for all of them (represented_communicator.h)
  Communicator::Memory memory; // of a communicator that shares its resources; null: its own
};

// Whether two ranks may have one device: OPENREG_SHARE_DEVICE.
bool may_share_device();

// Connects the ranks of a group and waits until all have joined. Raises DistBackendError if they do
// not.
CommunicatorPtr connect(const ConnectOptions &options);

// Joins by an id that was passed by other means than a store.
CommunicatorPtr connect(const openreg_comm_id &id, const ConnectOptions &options);
// Creates communicators for ranks of one process, each with a device.
std::vector<CommunicatorPtr> connect_all(const std::vector<int> &devices);

// At the end of the process: stops the polling thread and aborts communicators in which a call
// waits.
void abort_communicators();

} // namespace openreg
