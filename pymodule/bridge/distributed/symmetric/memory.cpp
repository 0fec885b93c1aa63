#include "distributed/symmetric/memory.h"

#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>

#include <map>
#include <mutex>
#include <utility>

#include "streams/inline_guard.h"

namespace openreg {

namespace {

namespace symmetric = c10d::symmetric_memory;
using c10d::symmetric_memory::SymmetricMemory;
using Name = std::optional<std::string>;

// What PyTorch gives to programs: of one tensor's storage, which need not begin its allocation.
class Handle final : public SymmetricMemory {
public:
  Handle(SymmetricPeersPtr peers, size_t offset) : peers_(std::move(peers)), offset_(offset) {}

  std::vector<void *> get_buffer_ptrs() override { return peers_->buffers; }
  std::vector<void *> get_signal_pad_ptrs() override { return peers_->pads; }
  void **get_buffer_ptrs_dev() override { return addresses(peers_->buffers_on_device); }
  void **get_signal_pad_ptrs_dev() override { return addresses(peers_->pads_on_device); }
  size_t get_buffer_size() override { return peers_->own->bytes(); }
  size_t get_offset() override { return offset_; }
  bool has_multicast_support() override { return false; }
  void *get_multicast_ptr() override { return nullptr; }
  int get_rank() override { return peers_->rank; }
  int get_world_size() override { return peers_->size; }
  c10::Device get_device() override { return {kDeviceType, device()}; }
  bool world_within_direct_access() override { return true; }

  void barrier(int channel, size_t timeout_ms) override {
    queue_flips(device(), peers_->barrier(channel), timeout_ms);
  }
  void put_signal(int peer, int channel, size_t timeout_ms) override {
    queue_flips(device(), {peers_->put(peer, channel)}, timeout_ms);
  }
  void wait_signal(int peer, int channel, size_t timeout_ms) override {
    queue_flips(device(), {peers_->take(peer, channel)}, timeout_ms);
  }

private:
  static void **addresses(const at::Tensor &tensor) {
    return static_cast<void **>(tensor.data_ptr());
  }
  c10::DeviceIndex device() const { return peers_->own->device(); }

  SymmetricPeersPtr peers_;
  size_t offset_;
};

class Allocator final : public symmetric::SymmetricMemoryAllocator {
public:
  // Never destroyed: tensors may outlive all else.
  static const c10::intrusive_ptr<Allocator> &get() {
    static const auto &one = *new auto(c10::make_intrusive<Allocator>());
    return one;
  }

  void *alloc(size_t size, int device, const Name &group) override {
    const WithoutGil no_gil; // it may give memory back, which waits
    const auto index =
        static_cast<c10::DeviceIndex>(device < 0 ? openreg_device_current() : device);
    auto memory = std::make_shared<SymmetricAllocation>(index, size);
    auto *const address = memory->buffer();
    const std::lock_guard lock(mutex_);
    entries_[address] = {std::move(memory), group, {}};
    return address;
  }

  void free(void *address) override {
    const WithoutGil no_gil; // it waits for the device
    Entry gone;              // freed without the mutex
    const std::lock_guard lock(mutex_);
    if (const auto found = entries_.find(address); found != entries_.end()) {
      gone = std::move(found->second);
      entries_.erase(found);
    }
  }

  size_t get_alloc_size(void *address) override {
    const std::lock_guard lock(mutex_);
    const auto *const entry = find(address);
    TORCH_CHECK(entry != nullptr, "openreg: ", address, " is not symmetric memory");
    return entry->memory->bytes();
  }

  bool has_allocation(void *address) override {
    const std::lock_guard lock(mutex_);
    return find(address) != nullptr;
  }

  c10::intrusive_ptr<SymmetricMemory> rendezvous(void *address, const Name &group) override {
    const auto place = place_of(address, group);
    return place.peers ? c10::make_intrusive<Handle>(place.peers, place.offset) : nullptr;
  }

  bool has_multicast_support(int) override { return false; }
  c10::DeviceType supported_device_type() override { return kDeviceType; }
  std::string name() override { return in_cuda_mode() ? "CUDA" : "OPENREG"; }

  SymmetricPlace place_of(void *address, const Name &group) {
    const WithoutGil no_gil; // it waits for other ranks
    SymmetricAllocationPtr memory;
    std::string name;
    {
      const std::lock_guard lock(mutex_);
      const auto *const entry = find(address);
      if (entry == nullptr) {
        return {};
      }
      memory = entry->memory;
      name = name_of(group, *entry);
      if (const auto known = entry->met.find(name); known != entry->met.end()) {
        return {known->second, offset_of(address, *memory)};
      }
    }
    auto peers = meet(memory, name);
    const std::lock_guard lock(mutex_);
    if (auto *const entry = find(address)) {
      entry->met[name] = peers;
    }
    return {std::move(peers), offset_of(address, *memory)};
  }

private:
  struct Entry {
    SymmetricAllocationPtr memory;
    Name group;                                   // named when it was allocated
    std::map<std::string, SymmetricPeersPtr> met; // by group
  };

  static std::string name_of(const Name &group, const Entry &entry) {
    const auto &name = group && !group->empty() ? group : entry.group;
    TORCH_CHECK(name && !name->empty(),
                "openreg: symmetric memory: a group is named neither where it is allocated nor in "
                "rendezvous()");
    return *name;
  }

  static size_t offset_of(const void *address, const SymmetricAllocation &memory) {
    return static_cast<size_t>(static_cast<const char *>(address) -
                               static_cast<const char *>(memory.buffer()));
  }

  // The allocation around an address; a memory pool puts several tensors into one.
  Entry *find(void *address) {
    auto next = entries_.upper_bound(address);
    if (next == entries_.begin()) {
      return nullptr;
    }
    auto &[begin, entry] = *std::prev(next);
    return begin == address || offset_of(address, *entry.memory) < entry.memory->bytes() ? &entry
                                                                                         : nullptr;
  }

  std::mutex mutex_;
  std::map<void *, Entry> entries_; // by buffer
};

} // namespace

void register_symmetric_memory() {
  const auto &allocator = Allocator::get();
  symmetric::register_allocator(kDeviceType, allocator);
  symmetric::register_availability(allocator->name(), allocator);
}

std::shared_ptr<PluggableAllocator> symmetric_memory_source() {
  static const auto &one = *new auto(std::make_shared<PluggableAllocator>(
      [](size_t bytes, int device, void *) -> void * {
        try {
          return Allocator::get()->alloc(bytes, device, std::nullopt);
        } catch (const c10::Error &) { // out of memory, as the pool's owner says
          return nullptr;
        }
      },
      [](void *address, size_t, int, void *) { Allocator::get()->free(address); }));
  return one;
}

SymmetricPlace find_symmetric_place(const at::Tensor &tensor, const std::string &group) {
  auto place = Allocator::get()->place_of(tensor.storage().mutable_data(), group);
  place.offset += static_cast<size_t>(tensor.storage_offset()) * tensor.element_size();
  return place;
}

} // namespace openreg
