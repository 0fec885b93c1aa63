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
using Parts = std::vector<openreg_part>;

// What is larger is reduced to scratch memory piece by piece.
constexpr int64_t kScratchBytes = 8 << 20;

enum Tag { kMessages, kCollectives };

// A status of the layer, with its sentence on this thread.
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

// Device memory as Gloo takes it: bytes of the host.
at::Tensor bytes_at(const void *address, size_t bytes) {
  return at::from_blob(openreg_kernel_view(address), {static_cast<int64_t>(bytes)}, at::kByte);
}

at::Tensor host_bytes(size_t bytes) {
  return at::empty({static_cast<int64_t>(bytes)}, at::kByte);
}

// Elements `begin` to `end` of a part, as far as it has them.
openreg_part piece_of(openreg_part part, size_t begin, size_t end, size_t element) {
  begin = std::min(begin, part.count);
  return {static_cast<char *>(part.address) + begin * element, std::min(end, part.count) - begin};
}

// As often on all ranks, and once if there is nothing: a rank's part may be empty.
template <class Work> void in_pieces(size_t count, size_t most, Work work) {
  size_t begin = 0;
  do {
    work(begin, begin + std::min(most, count - begin));
    begin += most;
  } while (begin < count);
}

} // namespace

struct SeveralHosts::Call {
  Call(const openreg_collective &asked, size_t size)
      : collective(asked), element(openreg_dtype_bytes(asked.dtype)),
        timeout(milliseconds(asked.timeout_ns)), size(size),
        inputs(parts(asked.inputs, asked.input_count, has_input_of_each(asked.kind))),
        outputs(parts(asked.outputs, asked.output_count, has_output_of_each(asked.kind))) {}

  openreg_part input() const { return collective.inputs[0]; }
  openreg_part output() const { return collective.outputs[0]; }
  size_t bytes(openreg_part part) const { return part.count * element; }
  openreg_part piece(openreg_part part, size_t begin, size_t end) const {
    return piece_of(part, begin, end, element);
  }

  static bool has_input_of_each(openreg_collective_kind kind) {
    return kind == OPENREG_COLLECTIVE_REDUCE_SCATTER || kind == OPENREG_COLLECTIVE_SCATTER ||
           kind == OPENREG_COLLECTIVE_ALL_TO_ALL;
  }
  static bool has_output_of_each(openreg_collective_kind kind) {
    return kind == OPENREG_COLLECTIVE_ALL_GATHER || kind == OPENREG_COLLECTIVE_GATHER ||
           kind == OPENREG_COLLECTIVE_ALL_TO_ALL;
  }

  // One part for each rank, where the collective has them.
  Parts parts(const openreg_part *given, int count, bool for_each) const {
    if (count != 1 || !for_each) {
      return {given, given + count};
    }
    Parts each;
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
  Parts inputs, outputs;
};

struct SeveralHosts::Remote {
  bool is_send;
  int peer;
  const void *address;
  size_t bytes;
};

SeveralHosts::SeveralHosts(const StorePtr &store, HostMap map, CommunicatorPtr local,
                           c10::DeviceIndex device, Milliseconds timeout)
    : map_(std::move(map)), local_(std::move(local)),
      scratch_(at::empty({kScratchBytes}, at::device({kDeviceType, device}).dtype(at::kByte))) {
  const auto make = [&](const std::string &prefix, int own, int size) {
    return c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>(prefix, store), own, size,
        c10d::ProcessGroupGloo::Options::create_default(timeout));
  };
  world_ = make("world", map_.rank, static_cast<int>(map_.host_of.size()));
  if (map_.index < map_.width()) {
    across_ = make("across/" + std::to_string(map_.index), map_.host, map_.host_count());
  }
}

SeveralHosts::~SeveralHosts() = default;

// ---- within the host ----------------------------------------------------------------------------

void SeveralHosts::run_locally(const Call &call, openreg_collective_kind kind, const Parts &inputs,
                               const Parts &outputs, int root) const {
  auto local = call.collective;
  local.kind = kind;
  local.root = root;
  if (local.reduction == OPENREG_REDUCE_AVG) { // divided at the end
    local.reduction = OPENREG_REDUCE_SUM;
  }
  local.inputs = inputs.data();
  local.input_count = static_cast<int>(inputs.size());
  local.outputs = outputs.data();
  local.output_count = static_cast<int>(outputs.size());
  require(local_->run(local));
}

Parts SeveralHosts::slices_of(const Call &call, openreg_part part) const {
  const auto width = static_cast<size_t>(map_.width());
  Parts slices;
  for (size_t i = 0; i < map_.neighbours().size(); ++i) {
    const size_t begin = part.count * std::min(i, width) / width;
    const size_t end = part.count * std::min(i + 1, width) / width;
    slices.push_back(piece_of(part, begin, end, call.element));
  }
  return slices;
}

Parts SeveralHosts::of_host(const Parts &parts, int host) const {
  Parts found;
  for (const int rank : map_.ranks[static_cast<size_t>(host)]) {
    found.push_back(parts[static_cast<size_t>(rank)]);
  }
  return found;
}

// ---- between counterparts -----------------------------------------------------------------------

// Looks after this host's communicator meanwhile: it may be ended.
void SeveralHosts::finish(const c10::intrusive_ptr<c10d::Work> &work, Milliseconds timeout) const {
  constexpr Milliseconds kLook(100);
  for (Milliseconds waited(0); waited < timeout; waited += kLook) {
    try {
      work->wait(kLook);
      return;
    } catch (const std::exception &) {
      if (work->isCompleted()) {
        throw;
      }
    }
    require(local_->check());
  }
  work->wait(Milliseconds(1)); // says that it is late
}

// Partial results of all hosts to the whole, the same on all.
void SeveralHosts::reduce_across(const Call &call, openreg_part slice) const {
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

void SeveralHosts::broadcast_across(const Call &call, openreg_part part, int host) const {
  std::vector<at::Tensor> bytes{bytes_at(part.address, call.bytes(part))};
  c10d::BroadcastOptions options;
  options.rootRank = host;
  options.timeout = call.timeout;
  finish(across_->broadcast(bytes, options), call.timeout);
}

// Messages to and from ranks of other hosts, while `meanwhile` is done with those of this one: none
// waits for another. Those of a pair with one tag are matched in order.
template <class Work>
void SeveralHosts::transfer(const std::vector<Remote> &remotes, Milliseconds timeout, int tag,
                            Work meanwhile) const {
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

void SeveralHosts::reduce_hosts(const Call &call, const std::vector<at::Tensor> &partial,
                                openreg_part result) const {
  std::vector<const void *> sources;
  for (const auto &each : partial) {
    sources.push_back(each.const_data_ptr());
  }
  void *const destination = openreg_kernel_view(result.address);
  auto reduction = call.collective.reduction;
  if (reduction == OPENREG_REDUCE_PREMUL_SUM) { // they were multiplied on their hosts
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

void SeveralHosts::all_reduce(const Call &call, openreg_part input, openreg_part output) {
  const auto slices = slices_of(call, output);
  const auto own = slices[static_cast<size_t>(map_.index)];
  run_locally(call, OPENREG_COLLECTIVE_REDUCE_SCATTER, slices_of(call, input), {own});
  if (own.count > 0) {
    reduce_across(call, own);
  }
  run_locally(call, OPENREG_COLLECTIVE_ALL_GATHER, {own}, slices);
}

void SeveralHosts::reduce(const Call &call) {
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

// Each host's sums for all counterparts are made in scratch memory, one behind the other.
void SeveralHosts::reduce_scatter(const Call &call) {
  const auto longest = std::ranges::max_element(call.inputs, {}, &openreg_part::count)->count;
  const auto hosts = static_cast<size_t>(map_.host_count());
  in_pieces(longest, kScratchBytes / (hosts * call.element),
            [&](size_t begin, size_t end) { reduce_scatter_piece(call, begin, end); });
}

void SeveralHosts::reduce_scatter_piece(const Call &call, size_t begin, size_t end) {
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
    const openreg_part sum{sums + filled, inputs[static_cast<size_t>(map_.index)].count};
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

// Some rank has no counterparts: each part is reduced for all.
void SeveralHosts::reduce_scatter_to_uneven_hosts(const Call &call) {
  for (int rank = 0; rank < static_cast<int>(call.size); ++rank) {
    const auto input = call.inputs[static_cast<size_t>(rank)];
    in_pieces(input.count, kScratchBytes / call.element, [&](size_t begin, size_t end) {
      const bool is_own = rank == map_.rank;
      all_reduce(call, call.piece(input, begin, end),
                 is_own ? call.piece(call.output(), begin, end)
                        : openreg_part{scratch_.data_ptr(), end - begin});
    });
  }
}

// ---- movements ----------------------------------------------------------------------------------

void SeveralHosts::broadcast(const Call &call) {
  const int root = call.collective.root;
  const int host = map_.host_of[static_cast<size_t>(root)];
  const auto whole = map_.rank == root ? call.input() : call.output();
  if (map_.host == host) {
    run_locally(call, OPENREG_COLLECTIVE_BROADCAST, map_.rank == root ? Parts{whole} : Parts{},
                call.outputs, map_.index_of[static_cast<size_t>(root)]);
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

void SeveralHosts::all_gather(const Call &call) {
  const auto own = call.outputs[static_cast<size_t>(map_.rank)];
  if (own.address != call.input().address) {
    require(openreg_copy(own.address, call.input().address, call.bytes(own)));
  }
  for (int host = 0; host < map_.host_count(); ++host) {
    const auto rank = map_.ranks[static_cast<size_t>(host)][static_cast<size_t>(map_.index)];
    const auto part = call.outputs[static_cast<size_t>(rank)];
    if (part.count > 0) {
      broadcast_across(call, part, host);
    }
    run_locally(call, OPENREG_COLLECTIVE_ALL_GATHER, {part}, of_host(call.outputs, host));
  }
}

// What is only moved from rank to rank: parts of this host's ranks by its communicator, others as
// messages.
void SeveralHosts::move(const Call &call) {
  const auto kind = call.collective.kind;
  const int root = call.collective.root;
  const bool is_rooted = kind == OPENREG_COLLECTIVE_GATHER || kind == OPENREG_COLLECTIVE_SCATTER;
  std::vector<Remote> remotes;
  for (int peer = 0; peer < static_cast<int>(call.size); ++peer) {
    if (map_.host_of[static_cast<size_t>(peer)] == map_.host) {
      continue;
    }
    const auto part_of = [&](const Parts &parts) {
      return parts.size() == 1 ? parts[0] : parts[static_cast<size_t>(peer)];
    };
    const bool to_peer = kind == OPENREG_COLLECTIVE_GATHER    ? peer == root
                         : kind == OPENREG_COLLECTIVE_SCATTER ? map_.rank == root
                                                              : true;
    const bool from_peer = kind == OPENREG_COLLECTIVE_GATHER    ? map_.rank == root
                           : kind == OPENREG_COLLECTIVE_SCATTER ? peer == root
                                                                : true;
    if (to_peer) {
      const auto part = part_of(call.inputs);
      remotes.push_back({true, peer, part.address, call.bytes(part)});
    }
    if (from_peer) {
      const auto part = part_of(call.outputs);
      remotes.push_back({false, peer, part.address, call.bytes(part)});
    }
  }
  const auto local = [&](const Parts &parts) {
    return parts.size() <= 1 ? parts : of_host(parts, map_.host);
  };
  transfer(remotes, call.timeout, kCollectives, [&] {
    if (!is_rooted || map_.host_of[static_cast<size_t>(root)] == map_.host) {
      run_locally(call, kind, local(call.inputs), local(call.outputs),
                  is_rooted ? map_.index_of[static_cast<size_t>(root)] : 0);
    }
  });
}

void SeveralHosts::barrier(const Call &call) {
  run_locally(call, OPENREG_COLLECTIVE_BARRIER, {}, {});
  if (map_.index == 0) {
    c10d::BarrierOptions options;
    options.timeout = call.timeout;
    finish(across_->barrier(options), call.timeout);
  }
  run_locally(call, OPENREG_COLLECTIVE_BARRIER, {}, {});
}

// ---- what the group calls -----------------------------------------------------------------------

// What goes wrong between hosts ends this host's communicator, too.
template <class Work> openreg_status SeveralHosts::guard(Work work) const {
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

openreg_status SeveralHosts::run(const openreg_collective &collective) {
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

openreg_status SeveralHosts::exchange(const std::vector<openreg_message> &messages,
                                      uint64_t timeout_ns) {
  std::vector<openreg_message> local;
  std::vector<Remote> remotes;
  for (auto message : messages) {
    const auto peer = static_cast<size_t>(message.peer);
    if (map_.host_of[peer] == map_.host) {
      message.peer = map_.index_of[peer];
      local.push_back(message);
    } else {
      remotes.push_back({message.is_send, message.peer, message.part.address,
                         message.part.count * openreg_dtype_bytes(message.dtype)});
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
