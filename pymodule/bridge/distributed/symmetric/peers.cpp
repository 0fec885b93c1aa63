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

constexpr size_t kAlignment = 512; // of memory of devices

// ---- allocations of this process ----------------------------------------------------------------

// Never destroyed: tensors may outlive all else.
struct Known {
  std::mutex mutex;
  std::map<void *, std::weak_ptr<SymmetricAllocation>> living; // by base, of ranks of this process
  std::vector<std::pair<c10::DeviceIndex, void *>> lent;       // freed, but other processes have it
};

Known &known() {
  static auto &one = *new Known;
  return one;
}

void know(const SymmetricAllocationPtr &allocation) {
  const std::lock_guard lock(known().mutex);
  known().living[allocation->base()] = allocation;
}

SymmetricAllocationPtr find_own(void *base) {
  const std::lock_guard lock(known().mutex);
  const auto found = known().living.find(base);
  auto allocation = found == known().living.end() ? nullptr : found->second.lock();
  TORCH_CHECK(allocation, "the allocation of another rank of this process was freed");
  return allocation;
}

// Frees what was lent and came back.
void reclaim(c10::DeviceIndex device) {
  std::vector<void *> returned;
  {
    const std::lock_guard lock(known().mutex);
    std::erase_if(known().lent, [&](const auto &each) {
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

// ---- memory of others ---------------------------------------------------------------------------

// What a rank's handle stands for: its base, as long as somebody has it.
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
            (void)openreg_device_drain(own_device); // whose work may use it
            (void)openreg_ipc_close(imported);
          }};
}

// ---- the exchange -------------------------------------------------------------------------------

// What a rank offers to another.
struct Offer {
  openreg_ipc_handle handle;
  uint64_t bytes, pad_bytes, started;
  int64_t pid;
};

using Bytes = std::vector<uint8_t>;

// One meeting of a group. Each value in the store is for one rank, which deletes it: so the store
// is as it was when all have met.
class Meeting {
public:
  Meeting(StorePtr store, int rank, int size)
      : store_(std::move(store)), rank_(rank), size_(size), timeout_(store_->getTimeout()) {}

  // Where the ranks are.
  HostMap find() {
    try {
      return find_hosts(store_, rank_, size_, timeout_);
    } catch (...) {
      HostMap own;
      own.rank = own.index = rank_;
      forget(own);
      throw;
    }
  }
  // When all have been found.
  void forget(const HostMap &map) { forget_hosts(store_, map); }

  // What each rank has for this one; `for_peer` makes what this one has for each.
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

Bytes pack(const Offer &offer) {
  Bytes bytes(sizeof offer);
  std::memcpy(bytes.data(), &offer, sizeof offer);
  return bytes;
}

Offer unpack(const Bytes &bytes) {
  Offer offer{};
  TORCH_CHECK(bytes.size() == sizeof offer, "the store of the group has ", bytes.size(),
              " bytes where a rank offers its memory");
  std::memcpy(&offer, bytes.data(), sizeof offer);
  return offer;
}

Offer offer_of(SymmetricAllocation &allocation) {
  return {.handle = allocation.share(),
          .bytes = allocation.bytes(),
          .pad_bytes = allocation.pad_bytes(),
          .started = openreg_process_started(getpid()),
          .pid = getpid()};
}

void require_alike(const std::vector<Offer> &offers) {
  for (size_t rank = 1; rank < offers.size(); ++rank) {
    TORCH_CHECK(offers[rank].bytes == offers[0].bytes &&
                    offers[rank].pad_bytes == offers[0].pad_bytes,
                "rank 0 has ", offers[0].bytes, " bytes and a signal pad of ", offers[0].pad_bytes,
                ", rank ", rank, " has ", offers[rank].bytes, " and ", offers[rank].pad_bytes,
                ": expected the same on all ranks");
  }
}

bool may_overlap() {
  const char *const chosen = std::getenv("TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES");
  return may_share_device() || (chosen != nullptr && std::strcmp(chosen, "1") == 0);
}

void require_own_devices(const std::vector<Offer> &offers) {
  std::map<int, size_t> rank_of;
  for (size_t rank = 0; rank < offers.size() && !may_overlap(); ++rank) {
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

void add_rank(SymmetricPeers &peers, const Offer &offer) {
  const bool is_local = offer.pid == getpid();
  peers.kept.push_back(import_peer(offer.handle, peers.own->device()));
  auto *const base = peers.kept.back().get();
  peers.pads.push_back(base);
  peers.buffers.push_back(static_cast<char *>(base) +
                          SymmetricAllocation::buffer_offset(offer.pad_bytes));
  peers.processes.push_back(is_local ? PeerProcess{}
                                     : PeerProcess{static_cast<int>(offer.pid), offer.started});
}

// What a rank says when it has the others' memory, or why not: text is never empty in the store.
constexpr char kDone = '.';

std::string add_ranks(SymmetricPeers &peers, const std::vector<Bytes> &received) {
  try {
    std::vector<Offer> offers;
    for (const auto &each : received) {
      offers.push_back(unpack(each));
    }
    for (const auto &offer : offers) { // first, for what is never opened is never free
      add_rank(peers, offer);
    }
    require_alike(offers);
    require_own_devices(offers);
    return {kDone};
  } catch (const c10::Error &error) {
    return error.what_without_backtrace();
  } catch (const std::exception &error) {
    return error.what();
  }
}

void meet_by(Meeting &meeting, SymmetricPeers &peers) {
  const auto map = meeting.find();
  const bool is_one_host = map.host_count() == 1;
  const auto offers = meeting.exchange(
      "offer", [&](int) { return is_one_host ? pack(offer_of(*peers.own)) : Bytes{0}; });
  meeting.forget(map);
  TORCH_CHECK_WITH(DistBackendError, is_one_host, "its ranks are on ", map.host_count(),
                   " hosts: expected one, whose ranks can reach each other's memory");
  const auto said = add_ranks(peers, offers);
  const auto all = meeting.exchange("met", [&](int) { return Bytes(said.begin(), said.end()); });
  for (size_t rank = 0; rank < all.size(); ++rank) {
    TORCH_CHECK_WITH(DistBackendError, all[rank] == Bytes{kDone}, "rank ", rank,
                     " says: ", std::string(all[rank].begin(), all[rank].end()));
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
  TORCH_CHECK_VALUE(bytes <= SIZE_MAX - before, "openreg: ", bytes, " bytes are too many");
  check(openreg_device_malloc(device, before + bytes, &base_));
  std::memset(openreg_kernel_view(base_), 0, before); // fresh, so no work uses it
}

SymmetricAllocation::~SymmetricAllocation() {
  {
    const std::lock_guard lock(known().mutex);
    known().living.erase(base_);
    if (is_shared_ && openreg_ipc_withdraw(base_) == OPENREG_NOT_READY) {
      known().lent.emplace_back(device_, base_);
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
              "; the size of signal pads is set by "
              "set_signal_pad_size()");
  TORCH_CHECK(pad >= 0 && pad < size && source >= 0 && source < size,
              "openreg: symmetric memory: rank ", pad == rank ? source : pad, ": expected 0 to ",
              size - 1);
  return static_cast<uint32_t *>(pads[static_cast<size_t>(pad)]) +
         static_cast<size_t>(channel * size + source);
}

Flip SymmetricPeers::put(int peer, int channel) const {
  auto *const address = word(peer, rank, channel);
  return {address, 0, 1,
          c10::str("group ", group, ", channel ", channel, ": rank ", rank,
                   " has a signal for rank ", peer, ", which did not take the one before"),
          processes[static_cast<size_t>(peer)]};
}

Flip SymmetricPeers::take(int peer, int channel) const {
  auto *const address = word(rank, peer, channel);
  return {address, 1, 0,
          c10::str("group ", group, ", channel ", channel, ": rank ", rank,
                   " waits for a signal of rank ", peer, ", which sent none"),
          processes[static_cast<size_t>(peer)]};
}

Flips SymmetricPeers::barrier(int channel) const {
  Flips flips;
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) {
      flips.push_back(put(peer, channel));
    }
  }
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) {
      flips.push_back(take(peer, channel));
    }
  }
  return flips;
}

std::vector<char *> SymmetricPeers::views_at(size_t offset) const {
  std::vector<char *> views;
  for (auto *const buffer : buffers) {
    views.push_back(static_cast<char *>(openreg_kernel_view(buffer)) + offset);
  }
  return views;
}

SymmetricPeersPtr meet(const SymmetricAllocationPtr &own, const std::string &name) {
  const auto group = c10d::resolve_process_group(name);
  const auto store = group->getStore();
  TORCH_CHECK(store, "openreg: symmetric memory: group ", name, " has no store");
  auto peers = std::make_shared<SymmetricPeers>();
  peers->group = name;
  peers->rank = group->getRank();
  peers->size = group->getSize();
  peers->own = own;
  know(own);
  Meeting meeting(c10::make_intrusive<c10d::PrefixStore>("openreg/symmetric", store), peers->rank,
                  peers->size);
  try {
    meet_by(meeting, *peers);
  } catch (const c10::Error &error) {
    TORCH_CHECK_WITH(DistBackendError, false, "openreg: symmetric memory: rank ", peers->rank,
                     " could not meet the others of group ", name, ": ",
                     error.what_without_backtrace());
  }
  peers->buffers_on_device = on_device(peers->buffers, own->device());
  peers->pads_on_device = on_device(peers->pads, own->device());
  return peers;
}

} // namespace openreg
