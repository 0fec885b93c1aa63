// torch.openreg.memory.CUDAPluggableAllocator: functions of a library that provide device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "allocator/allocator.h"

namespace openreg {

// The functions have the signatures that CUDA uses: a stream is its native handle as a pointer.
class PluggableAllocator {
public:
  using Allocate = void *(size_t bytes, int device, void *stream);
  using Free = void(void *address, size_t bytes, int device, void *stream);

  PluggableAllocator(Allocate *allocate, Free *free) : allocate_(allocate), free_(free) {}

  // Optional callbacks for an allocator of the whole process. on_init is called at once, with the
  // number of devices; the others by empty_cache, set_per_process_memory_fraction and
  // record_stream.
  void (*on_init)(int device_count) = nullptr;
  void (*on_reset)() = nullptr;
  void (*on_memory_fraction)(double fraction, int device) = nullptr;
  void (*on_record_stream)(void *address, void *stream) = nullptr;

  // Returns the functions for the allocator layer. This object must live as long as memory of it
  // exists.
  openreg_custom_allocator custom_allocator();

private:
  Allocate *allocate_;
  Free *free_;
};

// Makes an allocator that of the process, before the devices are initialized. It lives forever.
void change_current_allocator(std::shared_ptr<PluggableAllocator> allocator);

// Null while openreg's own allocator is used.
const std::shared_ptr<PluggableAllocator> &current_pluggable_allocator();

// Raises an error for functions that only openreg's own allocator supports.
void require_own_allocator(const char *function);

} // namespace openreg
