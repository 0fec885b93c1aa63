#include "distributed/multi_host_communicator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/status.h"

namespace openreg {

namespace {

using Milliseconds = std::chrono::milliseconds;
using BufferVector = std::vector<openreg_comm_buffer>;

// The scratch memory. Larger reductions run piece by piece.
constexpr int64_t kScratchBytes = 8 << 20;

enum Tag { kMessages, kCollectives };

// A status of the C layer; its message is this thread's last error.
struct Failure {
  openreg_status status;
};

void require(openreg_status status) {
  if (status != OPENREG_OK) {
    throw Failure{status};
  }
}

Milliseconds milliseconds(uint64_t ns) {
  constexpr uint64_t kNsPerMs = 1'000'000;
  constexpr uint64_t kMost = uint64_t{1} << 40;
  return Milliseconds(static_cast<int64_t>(std::clamp(ns / kNsPerMs, uint64_t{1}, kMost)));
}

// Device memory as a CPU tensor of bytes, for Gloo.
at::Tensor bytes_at(const void *address, size_t bytes) {
  return at::from_blob(openreg_kernel_view(address), {static_cast<int64_t>(bytes)}, at::kByte);
}

at::Tensor host_bytes(size_t bytes) {
  return at::empty({static_cast<int64_t>(bytes)}, at::kByte);
}

// Elements `begin` to `end` of a buffer, cut at its end.
openreg_comm_buffer piece_of(openreg_comm_buffer buffer, size_t begin, size_t end, size_t element) {
  begin = std::min(begin, buffer.count);
  return {static_cast<char *>(buffer.address) + begin * element,
          std::min(end, buffer.count) - begin};
}

// Calls `work` for each piece, and once for an empty buffer. All ranks must make the same number of
// calls, even where a rank's buffer is empty.
template <class Work> void in_pieces(size_t count, size_t most, Work work) {
  size_t begin = 0;
  do {
    work(begin, begin + std::min(most, count - begin));
    begin += most;
  } while (begin < count);
}

} // namespace

struct MultiHostCommunicator::Call {
  Call(const openreg_collective &given, size_t size)
      : collective(given), element(openreg_dtype_bytes(given.dtype)),
        timeout(milliseconds(given.timeout_ns)), size(size),
        traits(*openreg_collective_traits_of(given.kind)),
        inputs(split(given.inputs, given.input_count, traits.inputs)),
        outputs(split(given.outputs, given.output_count, traits.outputs)) {}

  openreg_comm_buffer input() const { return collective.inputs[0]; }
  openreg_comm_buffer output() const { return collective.outputs[0]; }
  size_t bytes(openreg_comm_buffer buffer) const { return buffer.count * element; }
  openreg_comm_buffer piece(openreg_comm_buffer buffer, size_t begin, size_t end) const {
    return piece_of(buffer, begin, end, element);
  }

  // One buffer for each rank, where the collective has them.
  BufferVector split(const openreg_comm_buffer *given, int count, openreg_buffer_rule rule) const {
    if (count != 1 || !openreg_buffers_are_per_rank(rule)) {
      return {given, given + count};
    }
    BufferVector each;
    const size_t length = given->count / size;
    for (size_t i = 0; i < size; ++i) {
      each.push_back(piece(*given, i * length, (i + 1) * length));
    }
    return each;
  }

  const openreg_collective &collective;
  size_t element;
  Milliseconds timeout;
  size_t size;
  const openreg_collective_traits &traits;
  BufferVector inputs, outputs;
};

struct MultiHostCommunicator::Remote {
  bool is_send;
  int peer;
  const void *address;
  size_t bytes;
};

MultiHostCommunicator::MultiHostCommunicator(const StorePtr &store, HostMap map,
                                             CommunicatorPtr local, c10::DeviceIndex device,
                                             Milliseconds timeout)
    : map_(std::move(map)), local_(std::move(local)),
      scratch_(at::empty({kScratchBytes}, at::device({kDeviceType, device}).dtype(at::kByte))) {
  const auto make = [&](const std::string &prefix, int own, int size) {
    return c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>(prefix, store), own, size,
        c10d::ProcessGroupGloo::Options::create_default(timeout));
  };
  world_ = make("world", map_.rank, static_cast<int>(map_.host_of.size()));
  if (map_.index < map_.min_ranks_per_host()) {
    across_ = make("across/" + std::to_string(map_.index), map_.host, map_.host_count());
  }
}

MultiHostCommunicator::~MultiHostCommunicator() = default;

// ---- within the host ----------------------------------------------------------------------------

void MultiHostCommunicator::run_locally(const Call &call, openreg_collective_kind kind,
                                        const BufferVector &inputs, const BufferVector &outputs,
                                        int root) const {
  auto local = call.collective;
  local.kind = kind;
  local.root = root;
  if (local.reduction == OPENREG_REDUCE_AVG) { // the sum is divided at the end
    local.reduction = OPENREG_REDUCE_SUM;
  }
  local.inputs = inputs.data();
  local.input_count = static_cast<int>(inputs.size());
  local.outputs = outputs.data();
  local.output_count = static_cast<int>(outputs.size());
  require(local_->run(local));
}

BufferVector MultiHostCommunicator::slices_of(const Call &call, openreg_comm_buffer buffer) const {
  const auto min_ranks_per_host = static_cast<size_t>(map_.min_ranks_per_host());
  BufferVector slices;
  for (size_t i = 0; i < map_.local_ranks().size(); ++i) {
    const size_t begin = buffer.count * std::min(i, min_ranks_per_host) / min_ranks_per_host;
    const size_t end = buffer.count * std::min(i + 1, min_ranks_per_host) / min_ranks_per_host;
    slices.push_back(piece_of(buffer, begin, end, call.element));
  }
  return slices;
}

BufferVector MultiHostCommunicator::of_host(const BufferVector &parts, int host) const {
  BufferVector found;
  for (const int rank : map_.ranks[static_cast<size_t>(host)]) {
    found.push_back(parts[static_cast<size_t>(rank)]);
  }
  return found;
}

// ---- between counterparts -----------------------------------------------------------------------

// Waits for a Gloo work, and checks meanwhile whether this host's communicator was aborted.
void MultiHostCommunicator::finish(const c10::intrusive_ptr<c10d::Work> &work,
                                   Milliseconds timeout) const {
  constexpr Milliseconds kCheckInterval(100);
  for (Milliseconds waited(0); waited < timeout; waited += kCheckInterval) {
    try {
      work->wait(kCheckInterval);
      return;
    } catch (const std::exception &) {
      if (work->isCompleted()) {
        throw;
      }
    }
    require(local_->check());
  }
  work->wait(Milliseconds(1)); // raises Gloo's timeout
}

// Reduces the hosts' partial results to the final one, the same on all ranks.
void MultiHostCommunicator::reduce_across(const Call &call, openreg_comm_buffer slice) const {
  const auto bytes = call.bytes(slice);
  std::vector<std::vector<at::Tensor>> gathered(1);
  for (int host = 0; host < map_.host_count(); ++host) {
    gathered[0].push_back(host_bytes(bytes));
  }
  std::vector<at::Tensor> own{bytes_at(slice.address, bytes)};
  c10d::AllgatherOptions options;
  options.timeout = call.timeout;
  finish(across_->allgather(gathered, own, options), call.timeout);
  reduce_hosts(call, gathered[0], slice);
}

void MultiHostCommunicator::broadcast_across(const Call &call, openreg_comm_buffer buffer,
                                             int host) const {
  std::vector<at::Tensor> bytes{bytes_at(buffer.address, call.bytes(buffer))};
  c10d::BroadcastOptions options;
  options.rootRank = host;
  options.timeout = call.timeout;
  finish(across_->broadcast(bytes, options), call.timeout);
}

// Sends and receives messages of other hosts, while `meanwhile` handles those of this host: none
// waits for another. Gloo matches messages of a pair with the same tag in order.
template <class Work>
void MultiHostCommunicator::transfer(const std::vector<Remote> &remotes, Milliseconds timeout,
                                     int tag, Work meanwhile) const {
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (const auto &remote : remotes) {
    if (remote.bytes > 0) {
      std::vector<at::Tensor> bytes{bytes_at(remote.address, remote.bytes)};
      works.push_back(remote.is_send ? world_->send(bytes, remote.peer, tag)
                                     : world_->recv(bytes, remote.peer, tag));
    }
  }
  meanwhile();
  for (const auto &work : works) {
    work->wait(timeout);
  }
}

// ---- reductions ---------------------------------------------------------------------------------

void MultiHostCommunicator::reduce_hosts(const Call &call, const std::vector<at::Tensor> &partial,
                                         openreg_comm_buffer result) const {
  std::vector<const void *> sources;
  for (const auto &each : partial) {
    sources.push_back(each.const_data_ptr());
  }
  void *const destination = openreg_kernel_view(result.address);
  auto reduction = call.collective.reduction;
  if (reduction == OPENREG_REDUCE_PREMUL_SUM) { // each host has applied the factors
    reduction = OPENREG_REDUCE_SUM;
  }
  const openreg_reduction_job job{
      .reduction = reduction,
      .dtype = call.collective.dtype,
      .source_count = static_cast<int>(sources.size()),
      .destination_count = 1,
      .sources = sources.data(),
      .destinations = &destination,
      .factors = nullptr,
      .divisor = static_cast<int>(call.size),
      .count = result.count,
  };
  openreg_reduce(&job, nullptr, nullptr);
}

void MultiHostCommunicator::all_reduce(const Call &call, openreg_comm_buffer input,
                                       openreg_comm_buffer output) {
  const auto slices = slices_of(call, output);
  const auto own = slices[static_cast<size_t>(map_.index)];
  run_locally(call, OPENREG_COLLECTIVE_REDUCE_SCATTER, slices_of(call, input), {own});
  if (own.count > 0) {
    reduce_across(call, own);
  }
  run_locally(call, OPENREG_COLLECTIVE_ALL_GATHER, {own}, slices);
}

void MultiHostCommunicator::reduce(const Call &call) {
  const auto input = call.input();
  if (call.collective.root == map_.rank) {
    return in_pieces(input.count, kScratchBytes / call.element, [&](size_t begin, size_t end) {
      all_reduce(call, call.piece(input, begin, end), call.piece(call.output(), begin, end));
    });
  }
  in_pieces(input.count, kScratchBytes / call.element, [&](size_t begin, size_t end) {
    all_reduce(call, call.piece(input, begin, end), {scratch_.data_ptr(), end - begin});
  });
}

// Each host computes its sums for all counterparts in scratch memory, one after the other.
void MultiHostCommunicator::reduce_scatter(const Call &call) {
  const auto longest =
      std::ranges::max_element(call.inputs, {}, &openreg_comm_buffer::count)->count;
  const auto hosts = static_cast<size_t>(map_.host_count());
  in_pieces(longest, kScratchBytes / (hosts * call.element),
            [&](size_t begin, size_t end) { reduce_scatter_piece(call, begin, end); });
}

void MultiHostCommunicator::reduce_scatter_piece(const Call &call, size_t begin, size_t end) {
  std::vector<int64_t> sent, received;
  auto *const sums = static_cast<char *>(scratch_.data_ptr());
  size_t filled = 0;
  const auto output = call.piece(call.output(), begin, end);
  const auto own_bytes = call.bytes(output);
  for (int host = 0; host < map_.host_count(); ++host) {
    auto inputs = of_host(call.inputs, host);
    for (auto &input : inputs) {
      input = call.piece(input, begin, end);
    }
    const openreg_comm_buffer sum{sums + filled, inputs[static_cast<size_t>(map_.index)].count};
    run_locally(call, OPENREG_COLLECTIVE_REDUCE_SCATTER, inputs, {sum});
    filled += call.bytes(sum);
    sent.push_back(static_cast<int64_t>(call.bytes(sum)));
    received.push_back(static_cast<int64_t>(own_bytes));
  }
  auto sums_here = bytes_at(sums, filled);
  auto sums_for_this = host_bytes(own_bytes * received.size());
  c10d::AllToAllOptions options;
  options.timeout = call.timeout;
  finish(across_->alltoall_base(sums_for_this, sums_here, received, sent, options), call.timeout);
  const auto each = std::max<int64_t>(static_cast<int64_t>(own_bytes), 1);
  reduce_hosts(call, sums_for_this.split(each), output);
}

// Some rank has no counterparts, so every chunk is reduced on all ranks.
void MultiHostCommunicator::reduce_scatter_to_uneven_hosts(const Call &call) {
  for (int rank = 0; rank < static_cast<int>(call.size); ++rank) {
    const auto input = call.inputs[static_cast<size_t>(rank)];
    in_pieces(input.count, kScratchBytes / call.element, [&](size_t begin, size_t end) {
      const bool is_own = rank == map_.rank;
      all_reduce(call, call.piece(input, begin, end),
                 is_own ? call.piece(call.output(), begin, end)
                        : openreg_comm_buffer{scratch_.data_ptr(), end - begin});
    });
  }
}

// ---- moving data --------------------------------------------------------------------------------

void MultiHostCommunicator::broadcast(const Call &call) {
  const int root = call.collective.root;
  const int host = map_.host_of[static_cast<size_t>(root)];
  const auto whole = map_.rank == root ? call.input() : call.output();
  if (map_.host == host) {
    run_locally(call, OPENREG_COLLECTIVE_BROADCAST,
                map_.rank == root ? BufferVector{whole} : BufferVector{}, call.outputs,
                map_.index_of[static_cast<size_t>(root)]);
  }
  const auto slices = slices_of(call, whole);
  const auto own = slices[static_cast<size_t>(map_.index)];
  if (has_counterparts() && own.count > 0) {
    broadcast_across(call, own, host);
  }
  if (map_.host != host) {
    run_locally(call, OPENREG_COLLECTIVE_ALL_GATHER, {own}, slices);
  }
}

void MultiHostCommunicator::all_gather(const Call &call) {
  const auto own = call.outputs[static_cast<size_t>(map_.rank)];
  if (own.address != call.input().address) {
    require(openreg_copy(own.address, call.input().address, call.bytes(own)));
  }
  for (int host = 0; host < map_.host_count(); ++host) {
    const auto rank = map_.ranks[static_cast<size_t>(host)][static_cast<size_t>(map_.index)];
    const auto buffer = call.outputs[static_cast<size_t>(rank)];
    if (buffer.count > 0) {
      broadcast_across(call, buffer, host);
    }
    run_locally(call, OPENREG_COLLECTIVE_ALL_GATHER, {buffer}, of_host(call.outputs, host));
  }
}

// Moves buffers from rank to rank: by the communicator within this host, by messages between hosts.
void MultiHostCommunicator::move(const Call &call) {
  const auto kind = call.collective.kind;
  const int root = call.collective.root;
  const bool has_root = call.traits.has_root;
  // With a root, the side that has a buffer for each rank exists at the root alone.
  const bool is_gather = has_root && openreg_buffers_are_per_rank(call.traits.outputs);
  const bool is_scatter = has_root && openreg_buffers_are_per_rank(call.traits.inputs);
  std::vector<Remote> remotes;
  for (int peer = 0; peer < static_cast<int>(call.size); ++peer) {
    if (map_.host_of[static_cast<size_t>(peer)] == map_.host) {
      continue;
    }
    const auto buffer_for = [&](const BufferVector &buffers) {
      return buffers.size() == 1 ? buffers[0] : buffers[static_cast<size_t>(peer)];
    };
    const bool is_root = map_.rank == root, is_peer_root = peer == root;
    const bool to_peer = is_gather ? is_peer_root : !is_scatter || is_root;
    const bool from_peer = is_scatter ? is_peer_root : !is_gather || is_root;
    if (to_peer) {
      const auto buffer = buffer_for(call.inputs);
      remotes.push_back({true, peer, buffer.address, call.bytes(buffer)});
    }
    if (from_peer) {
      const auto buffer = buffer_for(call.outputs);
      remotes.push_back({false, peer, buffer.address, call.bytes(buffer)});
    }
  }
  const auto local = [&](const BufferVector &parts) {
    return parts.size() <= 1 ? parts : of_host(parts, map_.host);
  };
  transfer(remotes, call.timeout, kCollectives, [&] {
    if (!has_root || map_.host_of[static_cast<size_t>(root)] == map_.host) {
      run_locally(call, kind, local(call.inputs), local(call.outputs),
                  has_root ? map_.index_of[static_cast<size_t>(root)] : 0);
    }
  });
}

void MultiHostCommunicator::barrier(const Call &call) {
  run_locally(call, OPENREG_COLLECTIVE_BARRIER, {}, {});
  if (map_.index == 0) {
    c10d::BarrierOptions options;
    options.timeout = call.timeout;
    finish(across_->barrier(options), call.timeout);
  }
  run_locally(call, OPENREG_COLLECTIVE_BARRIER, {}, {});
}

// ---- interface ----------------------------------------------------------------------------------

// An error between hosts aborts this host's communicator, too.
template <class Work> openreg_status MultiHostCommunicator::guard(Work work) const {
  try {
    work();
    return OPENREG_OK;
  } catch (const Failure &failure) {
    return failure.status;
  } catch (const std::exception &error) {
    const auto *const c10_error = dynamic_cast<const c10::Error *>(&error);
    const std::string why =
        std::string("between hosts: ") +
        (c10_error != nullptr ? c10_error->what_without_backtrace() : error.what());
    local_->abort(why);
    return local_->check();
  }
}

openreg_status MultiHostCommunicator::run(const openreg_collective &collective) {
  return guard([&] {
    const Call call(collective, map_.host_of.size());
    switch (collective.kind) {
    case OPENREG_COLLECTIVE_ALL_REDUCE:
      return all_reduce(call, call.input(), call.output());
    case OPENREG_COLLECTIVE_REDUCE:
      return reduce(call);
    case OPENREG_COLLECTIVE_REDUCE_SCATTER:
      return map_.is_even() ? reduce_scatter(call) : reduce_scatter_to_uneven_hosts(call);
    case OPENREG_COLLECTIVE_BROADCAST:
      return broadcast(call);
    case OPENREG_COLLECTIVE_ALL_GATHER:
      return map_.is_even() ? all_gather(call) : move(call);
    case OPENREG_COLLECTIVE_BARRIER:
      return barrier(call);
    default:
      return move(call);
    }
  });
}

openreg_status MultiHostCommunicator::exchange(const std::vector<openreg_message> &messages,
                                               uint64_t timeout_ns) {
  std::vector<openreg_message> local;
  std::vector<Remote> remotes;
  for (auto message : messages) {
    const auto peer = static_cast<size_t>(message.peer);
    if (map_.host_of[peer] == map_.host) {
      message.peer = map_.index_of[peer];
      local.push_back(message);
    } else {
      remotes.push_back({message.is_send, message.peer, message.buffer.address,
                         message.buffer.count * openreg_dtype_bytes(message.dtype)});
    }
  }
  return guard([&] {
    transfer(remotes, milliseconds(timeout_ns), kMessages, [&] {
      if (!local.empty()) {
        require(local_->exchange(local, timeout_ns));
      }
    });
  });
}

} // namespace openreg
