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

// The handle that PyTorch gives to programs. It belongs to a tensor's storage, which may begin in
// the middle of an allocation.
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
    queue_signals(device(), peers_->barrier(channel), timeout_ms);
  }
  void put_signal(int peer, int channel, size_t timeout_ms) override {
    queue_signals(device(), {peers_->put_signal(peer, channel)}, timeout_ms);
  }
  void wait_signal(int peer, int channel, size_t timeout_ms) override {
    queue_signals(device(), {peers_->wait_signal(peer, channel)}, timeout_ms);
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
    const WithoutGil no_gil; // it may free memory, which waits
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
    Entry gone;              // destroyed without the mutex
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
    const auto location = location_of(address, group);
    return location.peers ? c10::make_intrusive<Handle>(location.peers, location.offset) : nullptr;
  }

  bool has_multicast_support(int) override { return false; }
  c10::DeviceType supported_device_type() override { return kDeviceType; }
  std::string name() override { return in_cuda_mode() ? "CUDA" : "OPENREG"; }

  SymmetricLocation location_of(void *address, const Name &group) {
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
      if (const auto found = entry->rendezvoused.find(name); found != entry->rendezvoused.end()) {
        return {found->second, offset_of(address, *memory)};
      }
    }
    auto peers = rendezvous_group(memory, name);
    const std::lock_guard lock(mutex_);
    if (auto *const entry = find(address)) {
      entry->rendezvoused[name] = peers;
    }
    return {std::move(peers), offset_of(address, *memory)};
  }

private:
  struct Entry {
    SymmetricAllocationPtr memory;
    Name group;                                            // given at allocation
    std::map<std::string, SymmetricPeersPtr> rendezvoused; // by group name
  };

  static std::string name_of(const Name &group, const Entry &entry) {
    const auto &name = group && !group->empty() ? group : entry.group;
    TORCH_CHECK(
        name && !name->empty(),
        "openreg: symmetric memory: no group was given at allocation or to rendezvous(); pass "
        "a group name to one of them");
    return *name;
  }

  static size_t offset_of(const void *address, const SymmetricAllocation &memory) {
    return static_cast<size_t>(static_cast<const char *>(address) -
                               static_cast<const char *>(memory.buffer()));
  }

  // The allocation that contains an address. A memory pool puts several tensors into one
  // allocation.
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

// The same memory, for programs that choose PyTorch's backend over NCCL.
class NcclAllocator final : public symmetric::SymmetricMemoryAllocator {
public:
  void *alloc(size_t size, int device, const Name &group) override {
    return Allocator::get()->alloc(size, device, group);
  }
  void free(void *address) override { Allocator::get()->free(address); }
  size_t get_alloc_size(void *address) override {
    return Allocator::get()->get_alloc_size(address);
  }
  bool has_allocation(void *address) override { return Allocator::get()->has_allocation(address); }
  c10::intrusive_ptr<SymmetricMemory> rendezvous(void *address, const Name &group) override {
    return Allocator::get()->rendezvous(address, group);
  }
  bool has_multicast_support(int) override { return false; }
  c10::DeviceType supported_device_type() override { return kDeviceType; }
  std::string name() override { return "NCCL"; }
};

} // namespace

void register_symmetric_memory() {
  const auto &allocator = Allocator::get();
  symmetric::register_allocator(kDeviceType, allocator);
  symmetric::register_availability(allocator->name(), allocator);
  if (in_cuda_mode()) {
    const auto nccl = c10::make_intrusive<NcclAllocator>();
    symmetric::register_availability(nccl->name(), nccl);
  }
}

std::shared_ptr<PluggableAllocator> symmetric_memory_source() {
  static const auto &one = *new auto(std::make_shared<PluggableAllocator>(
      [](size_t bytes, int device, void *) -> void * {
        try {
          return Allocator::get()->alloc(bytes, device, std::nullopt);
        } catch (const c10::Error &) { // the pool reports that it is out of memory
          return nullptr;
        }
      },
      [](void *address, size_t, int, void *) { Allocator::get()->free(address); }));
  return one;
}

SymmetricLocation find_symmetric_location(const at::Tensor &tensor, const std::string &group) {
  auto location = Allocator::get()->location_of(tensor.storage().mutable_data(), group);
  location.offset += static_cast<size_t>(tensor.storage_offset()) * tensor.element_size();
  return location;
}

} // namespace openreg
