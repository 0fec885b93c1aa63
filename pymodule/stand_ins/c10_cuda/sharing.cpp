#include "stand_ins/c10_cuda/sharing.h"

#include <cstring>
#include <mutex>
#include <unordered_map>

#include "stand_ins/c10_cuda/raw_memory.h"
#include "allocator/allocator.h"
#include "bridge/core/status.h"

namespace openreg {

namespace {

struct Imports {
  std::mutex mutex;
  std::unordered_map<std::string, std::weak_ptr<void>> by_handle;
};

// Never destroyed, because imports may outlive everything else.
Imports &imports() {
  static auto *const instance = new Imports();
  return *instance;
}

int current_stream(int device) {
  int stream = OPENREG_STREAM_DEFAULT;
  check(openreg_stream_current(device, &stream));
  return stream;
}

} // namespace

c10::cuda::CUDACachingAllocator::ShareableHandle export_memory(void *address) {
  auto *const block = require_block(address);
  openreg_ipc_handle handle;
  check(openreg_block_export(block, current_stream(block->device), &handle));
  return {0, std::string(reinterpret_cast<const char *>(handle.bytes), sizeof handle.bytes)};
}

std::shared_ptr<void> import_memory(const std::string &text) {
  openreg_ipc_handle handle;
  TORCH_CHECK(text.size() == sizeof handle.bytes, "openreg: a handle of ", text.size(),
              " bytes was given, expected ", sizeof handle.bytes, " bytes of shareIpcHandle");
  std::memcpy(handle.bytes, text.data(), sizeof handle.bytes);
  auto &known = imports();
  const std::lock_guard lock(known.mutex);
  if (const auto found = known.by_handle.find(text); found != known.by_handle.end()) {
    if (auto living = found->second.lock()) {
      return living;
    }
  }
  std::erase_if(known.by_handle, [](const auto &entry) { return entry.second.expired(); });
  int device = 0;
  openreg_block *block = nullptr;
  check(openreg_ipc_device(&handle, &device));
  check(openreg_block_import(&handle, current_stream(device), &block));
  std::shared_ptr<void> memory(block->address, [block](void *) { openreg_block_free(block); });
  known.by_handle[text] = memory;
  return memory;
}

} // namespace openreg
