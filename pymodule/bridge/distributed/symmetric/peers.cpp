#include "distributed/symmetric/peers.h"

#include <ATen/ops/from_blob.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "allocator/allocator.h"
#include "collectives/collectives.h"
#include "distributed/communicator.h"
#include "distributed/host_map.h"
#include "memory/exchange/ipc.h"

namespace openreg {

namespace {

constexpr size_t kAlignment = 512; // of device memory

// ---- allocations of this process ----------------------------------------------------------------

// Never destroyed: tensors may outlive static objects.
struct SharedRegistry {
  std::mutex mutex;
  std::map<void *, std::weak_ptr<SymmetricAllocation>> living; // by base
  std::vector<std::pair<c10::DeviceIndex, void *>>
      still_shared; // freed, but in use by other processes
};

SharedRegistry &registry() {
  static auto &one = *new SharedRegistry;
  return one;
}

void register_allocation(const SymmetricAllocationPtr &allocation) {
  const std::lock_guard lock(registry().mutex);
  registry().living[allocation->base()] = allocation;
}

SymmetricAllocationPtr find_own(void *base) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().living.find(base);
  auto allocation = found == registry().living.end() ? nullptr : found->second.lock();
  TORCH_CHECK(allocation, "another rank of this process has freed its allocation");
  return allocation;
}

// Frees memory that other processes no longer use.
void reclaim(c10::DeviceIndex device) {
  std::vector<void *> returned;
  {
    const std::lock_guard lock(registry().mutex);
    std::erase_if(registry().still_shared, [&](const auto &each) {
      const bool is_back =
          each.first == device && openreg_ipc_withdraw(each.second) != OPENREG_NOT_READY;
      if (is_back) {
        returned.push_back(each.second);
      }
      return is_back;
    });
  }
  for (auto *const base : returned) {
    (void)openreg_device_free(base);
  }
}

// ---- memory of other ranks ----------------------------------------------------------------------

// Imports a rank's handle: its base address, valid as long as the result lives.
std::shared_ptr<void> import_peer(const openreg_ipc_handle &handle, c10::DeviceIndex own_device) {
  void *base = nullptr;
  check(openreg_ipc_recall(&handle, &base));
  if (base != nullptr) {
    return {base, [allocation = find_own(base)](void *) mutable { allocation.reset(); }};
  }
  size_t bytes = 0;
  int device = -1;
  check(openreg_ipc_open(&handle, OPENREG_STREAM_DEFAULT, &base, &bytes, &device));
  return {base, [own_device](void *imported) {
            (void)openreg_device_drain(own_device); // its queued work may use the memory
            (void)openreg_ipc_close(imported);
          }};
}

// ---- the exchange -------------------------------------------------------------------------------

// What a rank sends to each other rank.
struct MemoryOffer {
  openreg_ipc_handle handle;
  uint64_t bytes, pad_bytes, started;
  int64_t pid;
};

using Bytes = std::vector<uint8_t>;

// One exchange between the ranks of a group. Each value in the store is for one rank, which deletes
// it, so the store has no keys left at the end.
class Rendezvous {
public:
  Rendezvous(StorePtr store, int rank, int size)
      : store_(std::move(store)), rank_(rank), size_(size), timeout_(store_->getTimeout()) {}

  // Finds the hosts of the ranks.
  HostMap find() {
    try {
      return map_hosts(store_, rank_, size_, timeout_);
    } catch (...) {
      HostMap own;
      own.rank = own.index = rank_;
      forget(own);
      throw;
    }
  }
  // Deletes the keys of find(). Call it when all ranks have returned from it.
  void forget(const HostMap &map) { delete_host_keys(store_, map); }

  // Exchanges a value with each rank: `for_peer` returns the value for a peer. Returns the values
  // from all ranks.
  template <class Function> std::vector<Bytes> exchange(const char *what, Function for_peer) {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_) {
        store_->set(key(what, rank_, peer), for_peer(peer));
      }
    }
    std::vector<Bytes> received;
    for (int peer = 0; peer < size_; ++peer) {
      received.push_back(peer == rank_ ? for_peer(peer) : take(key(what, peer, rank_), peer));
    }
    return received;
  }

private:
  static std::string key(const char *what, int source, int destination) {
    return c10::str(what, "/", source, "/", destination);
  }

  Bytes take(const std::string &name, int peer) {
    try {
      store_->wait({name}, timeout_);
    } catch (const c10::Error &) {
      TORCH_CHECK_WITH(DistBackendError, false, "rank ", rank_, " waited ",
                       static_cast<double>(timeout_.count()) / 1000.0, " s for rank ", peer);
    }
    auto bytes = store_->get(name);
    store_->deleteKey(name);
    return bytes;
  }

  StorePtr store_;
  int rank_, size_;
  std::chrono::milliseconds timeout_;
};

Bytes pack(const MemoryOffer &offer) {
  Bytes bytes(sizeof offer);
  std::memcpy(bytes.data(), &offer, sizeof offer);
  return bytes;
}

MemoryOffer unpack(const Bytes &bytes) {
  MemoryOffer offer{};
  TORCH_CHECK(bytes.size() == sizeof offer, "rendezvous data is malformed (", bytes.size(),
              " bytes); do all ranks run the same openreg version?");
  std::memcpy(&offer, bytes.data(), sizeof offer);
  return offer;
}

MemoryOffer make_offer(SymmetricAllocation &allocation) {
  return {.handle = allocation.share(),
          .bytes = allocation.bytes(),
          .pad_bytes = allocation.pad_bytes(),
          .started = openreg_process_started(getpid()),
          .pid = getpid()};
}

void require_equal_sizes(const std::vector<MemoryOffer> &offers) {
  for (size_t rank = 1; rank < offers.size(); ++rank) {
    TORCH_CHECK(offers[rank].bytes == offers[0].bytes &&
                    offers[rank].pad_bytes == offers[0].pad_bytes,
                "rank 0 has ", offers[0].bytes, " bytes and a signal pad of ", offers[0].pad_bytes,
                ", rank ", rank, " has ", offers[rank].bytes, " and ", offers[rank].pad_bytes,
                ": expected the same on all ranks");
  }
}

bool allows_overlap() {
  const char *const chosen = std::getenv("TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES");
  return may_share_device() || (chosen != nullptr && std::strcmp(chosen, "1") == 0);
}

void require_distinct_devices(const std::vector<MemoryOffer> &offers) {
  std::map<int, size_t> rank_of;
  for (size_t rank = 0; rank < offers.size() && !allows_overlap(); ++rank) {
    const auto [first, is_new] = rank_of.emplace(device_of_handle(offers[rank].handle), rank);
    TORCH_CHECK(is_new,
                "detected allocations from overlapping devices from different ranks: ranks ",
                first->second, " and ", rank, " have device ", first->first);
  }
}

at::Tensor on_device(std::vector<void *> &addresses, c10::DeviceIndex device) {
  const auto count = static_cast<int64_t>(addresses.size());
  return at::from_blob(addresses.data(), {count}, at::kLong)
      .to(at::Device(kDeviceType, device), /*non_blocking=*/false);
}

void add_rank(SymmetricPeers &peers, const MemoryOffer &offer) {
  const bool is_local = offer.pid == getpid();
  peers.imports.push_back(import_peer(offer.handle, peers.own->device()));
  auto *const base = peers.imports.back().get();
  peers.pads.push_back(base);
  peers.buffers.push_back(static_cast<char *>(base) +
                          SymmetricAllocation::buffer_offset(offer.pad_bytes));
  peers.processes.push_back(is_local ? PeerProcess{}
                                     : PeerProcess{static_cast<int>(offer.pid), offer.started});
}

// A rank publishes this when it has imported all memory, or its error otherwise. A store cannot
// hold an empty value.
constexpr char kDone = '.';

std::string add_ranks(SymmetricPeers &peers, const std::vector<Bytes> &received) {
  try {
    std::vector<MemoryOffer> offers;
    for (const auto &each : received) {
      offers.push_back(unpack(each));
    }
    for (const auto &offer :
         offers) { // import all first: memory that is never imported is never freed
      add_rank(peers, offer);
    }
    require_equal_sizes(offers);
    require_distinct_devices(offers);
    return {kDone};
  } catch (const c10::Error &error) {
    return error.what_without_backtrace();
  } catch (const std::exception &error) {
    return error.what();
  }
}

void rendezvous_with(Rendezvous &rendezvous, SymmetricPeers &peers) {
  const auto map = rendezvous.find();
  const bool is_one_host = map.host_count() == 1;
  const auto offers = rendezvous.exchange(
      "offer", [&](int) { return is_one_host ? pack(make_offer(*peers.own)) : Bytes{0}; });
  rendezvous.forget(map);
  TORCH_CHECK_WITH(DistBackendError, is_one_host, "its ranks are on ", map.host_count(),
                   " hosts; expected one host, where ranks can access each other's memory");
  const auto result = add_ranks(peers, offers);
  const auto all =
      rendezvous.exchange("done", [&](int) { return Bytes(result.begin(), result.end()); });
  for (size_t rank = 0; rank < all.size(); ++rank) {
    TORCH_CHECK_WITH(DistBackendError, all[rank] == Bytes{kDone}, "rank ", rank,
                     " reported: ", std::string(all[rank].begin(), all[rank].end()));
  }
}

} // namespace

// ---- allocations --------------------------------------------------------------------------------

size_t SymmetricAllocation::buffer_offset(size_t pad_bytes) {
  return (pad_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

SymmetricAllocation::SymmetricAllocation(c10::DeviceIndex device, size_t bytes)
    : device_(device), bytes_(bytes), pad_bytes_(c10d::symmetric_memory::get_signal_pad_size()) {
  reclaim(device);
  const auto before = buffer_offset(pad_bytes_);
  TORCH_CHECK_VALUE(bytes <= SIZE_MAX - before, "openreg: ", bytes,
                    " bytes exceed the address space");
  check(openreg_device_malloc(device, before + bytes, &base_));
  std::memset(openreg_kernel_view(base_), 0, before); // new memory, so no work uses it
}

SymmetricAllocation::~SymmetricAllocation() {
  {
    const std::lock_guard lock(registry().mutex);
    registry().living.erase(base_);
    if (is_shared_ && openreg_ipc_withdraw(base_) == OPENREG_NOT_READY) {
      registry().still_shared.emplace_back(device_, base_);
      return;
    }
  }
  (void)openreg_device_free(base_);
}

openreg_ipc_handle SymmetricAllocation::share() {
  openreg_ipc_handle handle;
  const auto bytes = buffer_offset(pad_bytes_) + bytes_;
  check(openreg_ipc_export(base_, bytes, OPENREG_STREAM_DEFAULT, &handle));
  is_shared_ = true;
  return handle;
}

// ---- peers --------------------------------------------------------------------------------------

void *SymmetricPeers::word(int pad, int source, int channel) const {
  const auto channels = own->pad_bytes() / sizeof(uint32_t) / static_cast<size_t>(size);
  TORCH_CHECK(channel >= 0 && static_cast<size_t>(channel) < channels,
              "openreg: symmetric memory: channel ", channel, " of ", size,
              " ranks: expected 0 to ", static_cast<int64_t>(channels) - 1,
              "; for more channels call "
              "set_signal_pad_size()");
  TORCH_CHECK(pad >= 0 && pad < size && source >= 0 && source < size,
              "openreg: symmetric memory: rank ", pad == rank ? source : pad, ": expected 0 to ",
              size - 1);
  return static_cast<uint32_t *>(pads[static_cast<size_t>(pad)]) +
         static_cast<size_t>(channel * size + source);
}

SignalCas SymmetricPeers::put_signal(int peer, int channel) const {
  auto *const address = word(peer, rank, channel);
  return {address, 0, 1,
          c10::str("group ", group, ", channel ", channel, ": rank ", rank, " cannot signal rank ",
                   peer, ", which has not taken the previous signal"),
          processes[static_cast<size_t>(peer)]};
}

SignalCas SymmetricPeers::wait_signal(int peer, int channel) const {
  auto *const address = word(rank, peer, channel);
  return {address, 1, 0,
          c10::str("group ", group, ", channel ", channel, ": rank ", rank,
                   " waits for a signal of rank ", peer, ", which has not sent one"),
          processes[static_cast<size_t>(peer)]};
}

SignalSequence SymmetricPeers::barrier(int channel) const {
  SignalSequence signals;
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) {
      signals.push_back(put_signal(peer, channel));
    }
  }
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) {
      signals.push_back(wait_signal(peer, channel));
    }
  }
  return signals;
}

std::vector<char *> SymmetricPeers::views_at(size_t offset) const {
  std::vector<char *> views;
  for (auto *const buffer : buffers) {
    views.push_back(static_cast<char *>(openreg_kernel_view(buffer)) + offset);
  }
  return views;
}

SymmetricPeersPtr rendezvous_group(const SymmetricAllocationPtr &own, const std::string &name) {
  const auto group = c10d::resolve_process_group(name);
  const auto store = group->getStore();
  TORCH_CHECK(store, "openreg: symmetric memory: group ", name, " has no store");
  auto peers = std::make_shared<SymmetricPeers>();
  peers->group = name;
  peers->rank = group->getRank();
  peers->size = group->getSize();
  peers->own = own;
  register_allocation(own);
  Rendezvous rendezvous(c10::make_intrusive<c10d::PrefixStore>("openreg/symmetric", store),
                        peers->rank, peers->size);
  try {
    rendezvous_with(rendezvous, *peers);
  } catch (const c10::Error &error) {
    TORCH_CHECK_WITH(DistBackendError, false, "openreg: symmetric memory: rank ", peers->rank,
                     " failed the rendezvous of group ", name, ": ",
                     error.what_without_backtrace());
  }
  peers->buffers_on_device = on_device(peers->buffers, own->device());
  peers->pads_on_device = on_device(peers->pads, own->device());
  return peers;
}

} // namespace openreg
