#include "memory/allocation/pluggable_allocator.h"

#include <c10/util/Exception.h>

#include <utility>

#include "core/status.h"
#include "streams/handle.h"

namespace openreg {

namespace {

std::shared_ptr<PluggableAllocator> &current() {
  static auto *const allocator = new std::shared_ptr<PluggableAllocator>; // never destroyed
  return *allocator;
}

void *handle_of(int device, int stream) {
  return reinterpret_cast<void *>(handle_of_stream(device, stream));
}

} // namespace

openreg_custom_allocator PluggableAllocator::custom_allocator() {
  return {.allocate =
              [](void *context, size_t bytes, int device, int stream) {
                return static_cast<PluggableAllocator *>(context)->allocate_(
                    bytes, device, handle_of(device, stream));
              },
          .free =
              [](void *context, void *address, size_t bytes, int device, int stream) {
                static_cast<PluggableAllocator *>(context)->free_(address, bytes, device,
                                                                  handle_of(device, stream));
              },
          .context = this};
}

void change_current_allocator(std::shared_ptr<PluggableAllocator> allocator) {
  TORCH_CHECK(
      !openreg_is_initialized(),
      "Can't swap an already initialized allocator: change it before the first use of a device");
  const auto custom = allocator->custom_allocator();
  check(openreg_set_custom_allocator(&custom));
  current() = std::move(allocator);
  if (current()->on_init != nullptr) {
    int count = 0;
    check(openreg_device_count(&count));
    current()->on_init(count);
  }
}

const std::shared_ptr<PluggableAllocator> &current_pluggable_allocator() {
  return current();
}

void require_own_allocator(const char *function) {
  TORCH_CHECK(!current(), "CUDAPluggableAllocator does not yet support ", function,
              ": openreg does not see what it allocates");
}

} // namespace openreg
