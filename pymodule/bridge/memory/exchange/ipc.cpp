#include "memory/exchange/ipc.h"

#include <c10/core/StorageImpl.h>

#include <mutex>
#include <unordered_map>

#include "memory/allocation/memory.h"
#include "streams/current.h"
#include "streams/inline_guard.h"

namespace openreg {

namespace {

// The program did not choose the handle's value, so an invalid handle is not a ValueError.
void check_handle(openreg_status status) {
  TORCH_CHECK(status != OPENREG_INVALID_ARGUMENT, openreg_last_error());
  check(status);
}

// Returns the block that starts at the storage's first byte; raises if there is none.
openreg_block *require_exportable_block(const c10::Storage &storage) {
  const auto &pointer = storage.data_ptr();
  auto *block =
      owns_block(pointer) ? block_of(pointer) : openreg_block_find(storage.mutable_data());
  TORCH_CHECK(block != nullptr, "openreg: cannot send the memory at ", storage.data(),
              " to another process: no block of this process's allocator starts there. Consider "
              "cloning before sending.");
  return block;
}

// Storages that two processes share, by address. When this process's last strong reference is gone,
// the memory is released; the entry stays until a later search or insertion.
class SharedStorages {
public:
  // Returns the living storage at `address`, or none.
  c10::Storage find(const void *address) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return find_locked(address);
  }

  // Returns the living storage over the memory of `fresh`, or `fresh` if there is none.
  c10::Storage unify(c10::Storage fresh) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto known = find_locked(fresh.data());
    if (known && known.nbytes() == fresh.nbytes()) {
      return known;
    }
    forget_dead();
    storages_.insert_or_assign(fresh.data(), fresh.getWeakStorageImpl());
    return fresh;
  }

private:
  c10::Storage find_locked(const void *address) {
    const auto entry = storages_.find(address);
    auto living = entry != storages_.end() ? entry->second.lock() : nullptr;
    return living && living->data() == address ? c10::Storage(std::move(living)) : c10::Storage();
  }

  // Takes amortized constant time for each insertion.
  void forget_dead() {
    if (storages_.size() >= limit_) {
      std::erase_if(storages_, [](const auto &entry) { return entry.second.expired(); });
      limit_ = std::max(kLeastLimit, 2 * storages_.size());
    }
  }

  static constexpr size_t kLeastLimit = 128;

  std::mutex mutex_;
  std::unordered_map<const void *, c10::weak_intrusive_ptr<c10::StorageImpl>> storages_;
  size_t limit_ = kLeastLimit;
};

// Never destroyed, because storages may outlive everything else.
SharedStorages &received() {
  static auto *instance = new SharedStorages();
  return *instance;
}

SharedStorages &sent() {
  static auto *instance = new SharedStorages();
  return *instance;
}

// Returns the storage of a handle that this process made, or none for another process's handle.
c10::Storage find_own_export(const openreg_ipc_handle &handle) {
  void *address = nullptr;
  check_handle(openreg_ipc_recall(&handle, &address));
  if (address == nullptr) {
    return {};
  }
  auto storage = sent().find(address);
  TORCH_CHECK(storage,
              "openreg: the handle is rejected: this process made it and has freed its memory");
  return storage;
}

// Makes PyTorch's event, which has no event of its own yet, the owner of `made`.
void adopt(c10::Event &event, openreg_event *made, c10::DeviceIndex device) {
  const PendingEventImport waiting(made);
  event.record(c10::Stream(c10::Stream::UNSAFE, {kDeviceType, device}, OPENREG_STREAM_DEFAULT));
}

} // namespace

constinit thread_local PendingEventImport *PendingEventImport::current_ = nullptr;

openreg_ipc_handle export_storage(const c10::Storage &storage) {
  auto *block = require_exportable_block(storage);
  TORCH_CHECK(!openreg_block_is_imported(block), "Attempted to send ", platform_name(),
              " tensor received from another process; this is not currently supported. Consider "
              "cloning before sending.");
  sent().unify(storage);
  const WithoutGil no_gil; // may wait for room in the stream's queue
  openreg_ipc_handle handle;
  check(openreg_block_export(block, current_stream(storage.device().index()), &handle));
  return handle;
}

c10::DeviceIndex device_of_handle(const openreg_ipc_handle &handle) {
  int device = -1;
  check_handle(openreg_ipc_device(&handle, &device));
  return static_cast<c10::DeviceIndex>(device);
}

c10::Storage import_storage(c10::DeviceIndex device, size_t bytes,
                            const openreg_ipc_handle &handle) {
  if (auto own = find_own_export(handle)) {
    return own;
  }
  const int stream = current_stream(device);
  openreg_block *block = nullptr;
  {
    const WithoutGil no_gil; // may wait for room in the stream's queue
    check_handle(openreg_block_import(&handle, stream, &block));
  }
  auto pointer = device_pointer(block);
  TORCH_CHECK(block->device == device && bytes > 0 && bytes <= block->bytes,
              "openreg: the handle is for ", block->bytes, " bytes on device ", block->device,
              ", but was received as ", bytes, " bytes on device ", static_cast<int>(device));
  auto storage = received().unify(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, std::move(pointer), device_allocator(),
      /*resizable=*/false));
  check(openreg_block_record_stream(block_of(storage.data_ptr()), stream));
  return storage;
}

void collect_shared_memory() {
  if (!openreg_is_initialized() || openreg_in_bad_fork()) {
    return;
  }
  int count = 0;
  check(openreg_device_count(&count));
  for (int device = 0; device < count; ++device) {
    check(openreg_memory_collect_shared(device));
  }
}

openreg_ipc_handle export_event(c10::Event &event) {
  TORCH_CHECK(event.device_type() == kDeviceType, "openreg: an event of device type ",
              event.device_type(), " was given, expected ", kDeviceType);
  TORCH_CHECK(event.flag() == c10::EventFlag::PYTORCH_DEFAULT,
              "openreg: an event with timing cannot be sent to another process: torch.",
              in_cuda_mode() ? "cuda" : "openreg",
              ".Event(interprocess=True) creates one without timing");
  if (event.eventId() == nullptr) {
    const auto device = static_cast<c10::DeviceIndex>(openreg_device_current());
    openreg_event *made = nullptr;
    check(openreg_event_create(device, /*enable_timing=*/false, &made));
    adopt(event, made, device);
  }
  openreg_ipc_handle handle;
  check_handle(openreg_event_export(static_cast<openreg_event *>(event.eventId()), &handle));
  return handle;
}

void import_event(c10::Event &event, c10::DeviceIndex device, const openreg_ipc_handle &handle) {
  openreg_event *made = nullptr;
  check_handle(openreg_event_import(&handle, &made));
  adopt(event, made, device);
}

} // namespace openreg
