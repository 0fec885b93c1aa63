// Memory that a group allocates. NCCL has a special kind for faster transfers; here all device
// memory is alike.

#include "distributed/occl/process_group_occl.h"

#include <c10/core/DeviceGuard.h>

#include "streams/inline_guard.h"

namespace openreg {

namespace {

void *allocate(size_t bytes, int device, void *) {
  void *address = nullptr;
  check(openreg_device_malloc(device, bytes, &address));
  return address;
}

void free_collective_memory(void *address, size_t, int, void *) {
  check(openreg_device_free(address));
}

} // namespace

bool ProcessGroupOccl::supportsTensorAlloc(c10::DeviceIndex device) {
  constexpr int kFirstMulticastMajor = 9;
  openreg_device_properties properties;
  check(openreg_device_get_properties(device, &properties));
  return properties.profile.major >= kFirstMulticastMajor;
}

std::shared_ptr<PluggableAllocator> ProcessGroupOccl::memory_allocator() {
  TORCH_CHECK(supportsTensorAlloc(guess_device()), backend_title(),
              " mem allocator is not supported in this ", backend_title(), " version");
  static const auto one = std::make_shared<PluggableAllocator>(&allocate, &free_collective_memory);
  return one;
}

void ProcessGroupOccl::check_pool(int device) {
  const std::lock_guard lock(submit_mutex_);
  const auto found = connections_.find(static_cast<c10::DeviceIndex>(device));
  TORCH_CHECK_WITH(DistBackendError,
                   found != connections_.end() && found->second.communicator != nullptr,
                   backend_title(),
                   " communicator has not been initialized before mem pool creation. You can pass "
                   "`device_id` to init_process_group -- one way of eager initialization -- to "
                   "work around this issue");
}

NcclMemory &ProcessGroupOccl::memory_of_communicator() {
  const auto device = guess_device();
  const WithoutGil no_gil;
  const std::lock_guard lock(submit_mutex_);
  const auto found = connections_.find(device);
  TORCH_CHECK(found != connections_.end() && found->second.communicator != nullptr, backend_title(),
              " communicator not initialized.");
  return *found->second.communicator->memory();
}

void ProcessGroupOccl::suspend() {
  memory_of_communicator().suspend();
}

void ProcessGroupOccl::resume() {
  memory_of_communicator().resume();
}

// The names are those of NCCL's statistics.
std::unordered_map<std::string, uint64_t> ProcessGroupOccl::getMemoryStats() {
  auto &memory = memory_of_communicator();
  return {{"suspend", memory.bytes()},
          {"suspended", memory.is_suspended() ? 1 : 0},
          {"persist", 0},
          {"total", memory.bytes()}};
}

at::Tensor ProcessGroupOccl::allocateTensor(long size, at::TensorOptions options) {
  TORCH_CHECK_VALUE(options.has_device(), "Tensor options must include device");
  TORCH_CHECK_VALUE(options.device().type() == kDeviceType, backend_title(),
                    " tensor allocator expects ", c10::DeviceTypeName(kDeviceType, true),
                    " type but got ", options.device());
  const auto device = device_index(options.device().index());
  const auto allocator = memory_allocator();
  check_pool(device);
  if (pool_ == nullptr) {
    pool_ = std::make_unique<MemPool>(allocator, false, false);
  }
  const c10::DeviceGuard guard({kDeviceType, device});
  begin_allocate_to_pool(device, pool_->id());
  const auto end = [&](void *) {
    end_allocate_to_pool(device, pool_->id());
    release_pool(pool_->id());
  };
  const std::unique_ptr<void, decltype(end)> ends(this, end); // also if the allocation fails
  return at::empty({size}, options);
}

} // namespace openreg
