// Pinned host memory for PyTorch: pin_memory(), is_pinned() and torch.accelerator's host
// statistics, over the allocator layer's pool.

#include "memory/allocation/pinned.h"

#include "allocator/allocator.h"
#include "memory/allocation/allocator_settings.h"
#include "memory/observation/stat.h"
#include "core/status.h"
#include "streams/observer.h"

namespace openreg {

namespace {

void free_pinned(void *address) {
  notify_observers([address](Observer &observer) { observer.unpin(address); });
  openreg_pinned_free(address);
}

at::CachingAllocator::DurationStat to_duration(const openreg_duration &from) {
  at::CachingAllocator::DurationStat to;
  to.total = from.total;
  to.max = from.max;
  to.min = from.min;
  to.count = from.count;
  return to;
}

class PinnedAllocator final : public at::HostAllocator {
public:
  c10::DataPtr allocate(size_t bytes) override {
    require_allocator_settings();
    void *address = nullptr;
    check(openreg_pinned_allocate(bytes, &address));
    notify_observers([&](Observer &observer) { observer.pinned(address, bytes); });
    return {address, address, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }

  void copy_data(void *destination, const void *source, size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }

  // A queued copy holds a reference to its host memory, so there is nothing to record.
  bool record_event(void *address, void *, c10::Stream) override {
    return openreg_pinned_contains(address);
  }

  void empty_cache() override { check(openreg_pinned_empty_cache()); }

  at::HostStats get_stats() override {
    openreg_pinned_stats from;
    check(openreg_pinned_get_stats(&from));
    at::HostStats to;
    to.active_requests = to_stat(from.active_requests);
    to.active_bytes = to_stat(from.active_bytes);
    to.allocations = to_stat(from.allocations);
    to.allocated_bytes = to_stat(from.allocated_bytes);
    to.host_alloc_time = to_duration(from.host_alloc_time);
    to.host_free_time = to_duration(from.host_free_time);
    to.num_host_alloc = from.allocations.allocated;
    to.num_host_free = from.allocations.freed;
    return to;
  }

  void reset_accumulated_stats() override { openreg_pinned_reset_accumulated(); }
  void reset_peak_stats() override { openreg_pinned_reset_peak(); }
};

PinnedAllocator the_pinned_allocator;

} // namespace

void install_pinned_allocator() {
  at::setHostAllocator(kDeviceType, &the_pinned_allocator);
}

at::HostAllocator *pinned_allocator() {
  return &the_pinned_allocator;
}

} // namespace openreg
