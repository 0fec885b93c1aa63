// torch.openreg.memory.CUDAPluggableAllocator: functions of a library that give device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "allocator/allocator.h"

namespace openreg {

// As of cudaMalloc's and cudaFree's users: a stream is its native handle as a pointer.
class PluggableAllocator {
public:
  using Allocate = void *(size_t bytes, int device, void *stream);
  using Free = void(void *address, size_t bytes, int device, void *stream);

  PluggableAllocator(Allocate *allocate, Free *free) : allocate_(allocate), free_(free) {}

  // What is called, where it is set, when this allocator serves the whole process: with the number
  // of devices at once, by empty_cache, by set_per_process_memory_fraction, by record_stream.
  void (*on_init)(int device_count) = nullptr;
  void (*on_reset)() = nullptr;
  void (*on_memory_fraction)(double fraction, int device) = nullptr;
  void (*on_record_stream)(void *address, void *stream) = nullptr;

  // For the allocator below. This object must live as long as memory of it does.
  openreg_memory_source source();

private:
  Allocate *allocate_;
  Free *free_;
};

// Makes an allocator that of the process, before the devices are initialized; it lives for good.
void change_current_allocator(std::shared_ptr<PluggableAllocator> allocator);

// Null while it is openreg's own.
const std::shared_ptr<PluggableAllocator> &current_pluggable_allocator();

// Raises for what only openreg's own allocator can tell or do.
void require_own_allocator(const char *function);

} // namespace openreg
