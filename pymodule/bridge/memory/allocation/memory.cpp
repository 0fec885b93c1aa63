#include "memory/allocation/memory.h"

#include <c10/core/StorageImpl.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <memory>

#include "compat/caching_allocators.h"
#include "compat/cpu_allocator.h"
#include "memory/allocation/allocator_settings.h"
#include "memory/allocation/host_blocks.h"
#include "memory/allocation/lazy_clone.h"
#include "memory/observation/memory_history.h"
#include "memory/allocation/out_of_memory.h"
#include "memory/allocation/allocator_history.h"
#include "memory/allocation/pluggable_allocator.h"
#include "memory/observation/stat.h"
#include "streams/handle.h"
#include "streams/observer.h"
#include "streams/inline_guard.h"

namespace openreg {

namespace {

// Reports an allocation or a free to PyTorch's profiler.
void report_to_profiler(const openreg_block *block, int64_t bytes) {
  openreg_memory_stats stats;
  if (openreg_memory_get_stats(block->device, &stats) != OPENREG_OK) {
    return;
  }
  const auto total = [](const openreg_stat *kinds) {
    return static_cast<size_t>(kinds[OPENREG_POOL_ALL].current);
  };
  c10::reportMemoryUsageToProfiler(block->address, bytes, total(stats.allocated_bytes),
                                   total(stats.reserved_bytes),
                                   {kDeviceType, static_cast<c10::DeviceIndex>(block->device)});
}

} // namespace

openreg_block *require_block(const void *device_address) {
  auto *const block = openreg_block_find(device_address);
  TORCH_CHECK(block != nullptr, "invalid device pointer: ", device_address,
              "\nopenreg: no allocated block of the caching allocator begins there");
  return block;
}

void free_memory(void *context) {
  free_block(block_of_context(context));
}

void free_block(openreg_block *block) {
  const MemoryStackScope recorded(MemoryStackScope::kFree);
  notify_observers([block](Observer &observer) { observer.begin_free(*block); });
  if (block->user != nullptr) {
    // The twin storage shows this memory without owning it, so it must go first.
    c10::intrusive_ptr<c10::StorageImpl>::reclaim(static_cast<c10::StorageImpl *>(block->user));
    block->user = nullptr;
  }
  if (c10::memoryProfilingEnabled()) [[unlikely]] {
    openreg_block shown = *block;
    openreg_block_free(block);
    report_to_profiler(&shown, -static_cast<int64_t>(shown.bytes));
    return;
  }
  openreg_block_free(block);
}

namespace {
std::atomic<int64_t> misplaced{0};
} // namespace

int64_t misplaced_allocations() {
  return misplaced.load(std::memory_order_relaxed);
}

void free_override_block(void *address) {
  auto *block = address == nullptr ? nullptr : block_at(address);
  if (block == nullptr || block->user != kOverrideBlock) {
    return;
  }
  if (AllocatorOverride::current_.where == AllocatorOverride::Where::kDevice &&
      AllocatorOverride::current_.placement.nth != Placement::kAll) [[unlikely]] {
    misplaced.fetch_add(1, std::memory_order_relaxed);
  }
  if (auto *log = AllocatorOverride::current_.log; log != nullptr) {
    log->note_free(address);
  }
  block->user = nullptr;
  free_block(block);
}

void Allocations::note(void *kernel_address, size_t bytes) {
  list.push_back({kernel_address, bytes});
  order.push_back(static_cast<int>(list.size()));
}

void Allocations::note_free(const void *kernel_address) {
  for (size_t i = list.size(); i-- > 0;) { // the last one that was allocated there
    if (list[i].kernel_address == kernel_address) {
      list[i].is_freed = true;
      order.push_back(-static_cast<int>(i + 1));
      return;
    }
  }
}

namespace {

void add_reserved_by_pools(int device, c10::CachingDeviceAllocator::DeviceStats &to) {
  auto *const pools = reserved_by_private_pools(to);
  if (pools == nullptr) {
    return;
  }
  openreg_mempool_stats *from = nullptr;
  size_t count = 0;
  check(openreg_mempool_get_stats(device, &from, &count));
  const std::unique_ptr<openreg_mempool_stats, decltype(&std::free)> owner(from, &std::free);
  for (size_t i = 0; i < count; ++i) {
    auto &kinds = (*pools)[{0, from[i].mempool}];
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      kinds[kind] = to_stat(from[i].reserved_bytes[kind]);
    }
  }
}

bool is_capturing(int device) {
  bool found = false;
  for (int stream = 0; !found && openreg_captures_exist() && stream < OPENREG_STREAMS_PER_DEVICE;
       ++stream) {
    found = openreg_stream_is_capturing(device, stream);
  }
  return found;
}

class DeviceAllocator final : public c10::DeviceAllocator, public RecordedHistory {
public:
  c10::DataPtr allocate(size_t bytes) override {
    const auto device = static_cast<c10::DeviceIndex>(openreg_device_current());
    Block block(allocate_block(device, bytes), &free_block);
    auto *const address = block->address; // null for 0 bytes
    if (address != nullptr) {
      block.release();
    }
    return {address, address, &free_memory, c10::Device(kDeviceType, device)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }

  // Copies a whole block, in the order of the current stream.
  void copy_data(void *destination, const void *source, size_t bytes) const override {
    auto *const from = openreg_block_find(source), *const to = openreg_block_find(destination);
    TORCH_INTERNAL_ASSERT(bytes == 0 || (from != nullptr && to != nullptr));
    if (bytes == 0) {
      return;
    }
    to->user_flags = from->user_flags;
    const auto device = static_cast<c10::DeviceIndex>(to->device);
    run_on_stream(device, [=] { return openreg_copy(destination, source, bytes); });
    int stream = OPENREG_STREAM_DEFAULT;
    check(openreg_stream_current(device, &stream));
    if (stream != from->stream) { // on its own stream, freed memory is reused in order anyway
      check(openreg_block_record_stream(from, stream));
    }
  }

  bool initialized() override { return openreg_is_initialized(); }

  void emptyCache(c10::MempoolId_t pool) override {
    if (!openreg_is_initialized()) {
      return;
    }
    if (const auto &pluggable = current_pluggable_allocator()) {
      if (pluggable->on_reset != nullptr) {
        pluggable->on_reset();
      }
      return;
    }
    const MemoryStackScope recorded(MemoryStackScope::kOther);
    int count = 0;
    check(openreg_device_count(&count));
    for (int device = 0; device < count; ++device) {
      if (is_capturing(device)) {
        continue; // as CUDA's allocator, which keeps its cache during a capture
      }
      wait_for_device(static_cast<c10::DeviceIndex>(device)); // queued work may still write to
                                                              // freed memory
      if (pool.second == 0) {
        check(openreg_cache_empty(device));
      }
    }
    if (pool.second != 0) {
      check(openreg_mempool_empty(pool.second));
    }
  }

  void recordStream(const c10::DataPtr &pointer, c10::Stream stream) override {
    if (const auto &pluggable = current_pluggable_allocator()) {
      if (pluggable->on_record_stream != nullptr) {
        pluggable->on_record_stream(pointer.get(),
                                    reinterpret_cast<void *>(handle_of_stream(stream)));
      }
    }
    if (auto *const block = find_block(pointer); block != nullptr) {
      check(openreg_block_record_stream(block, static_cast<int>(stream.id())));
      notify_observers(
          [&](Observer &observer) { observer.record_use(pointer.get(), stream_key_of(stream)); });
    }
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    require_own_allocator("getDeviceStats");
    openreg_memory_stats from;
    check(openreg_memory_get_stats(device, &from));
    c10::CachingDeviceAllocator::DeviceStats to;
    for (int kind = 0; kind < OPENREG_POOL_KINDS; ++kind) {
#define X(name) to.name[kind] = to_stat(from.name[kind]);
      OPENREG_MEMORY_STAT_LIST(X)
#undef X
    }
    to.oversize_allocations = to_stat(from.oversize_allocations);
    to.oversize_segments = to_stat(from.oversize_segments);
    to.num_alloc_retries = from.alloc_retries;
    to.num_ooms = from.ooms;
    to.num_device_alloc = from.device_allocs;
    to.num_device_free = from.device_frees;
    to.num_sync_all_streams = from.stream_syncs;
    to.num_oom_rejections = from.oom_rejections;
    add_reserved_by_pools(device, to);
    to.max_split_size = static_cast<int64_t>(from.max_split_bytes); // no limit is -1
    return to;
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    require_own_allocator("resetAccumulatedStats");
    check(openreg_memory_reset_accumulated(device));
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    require_own_allocator("resetPeakStats");
    check(openreg_memory_reset_peak(device));
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    uint64_t free = 0, total = 0;
    check(openreg_ledger_query(device, &free, &total));
    return {free, total};
  }
};

} // namespace

class OverrideAllocator final : public c10::Allocator {
public:
  c10::DataPtr allocate(size_t bytes) override {
    auto &current = AllocatorOverride::current_;
    if (current.where == AllocatorOverride::Where::kReserved) {
      return allocate_reserved(bytes);
    }
    if (current.where == AllocatorOverride::Where::kHost && current.log == nullptr) {
      return host_blocks_exist() && bytes > 0 ? allocate_host_block(bytes) : host_->allocate(bytes);
    }
    if (bytes == 0) {
      return {nullptr, nullptr, &free_override_block, c10::Device(c10::DeviceType::CPU)};
    }
    const bool on_device = goes_to_device(current.placement, bytes);
    if (current.log == nullptr) {
      return on_device ? allocate_on_device(bytes) : host_->allocate(bytes);
    }
    auto memory = on_device ? allocate_on_device(bytes) : allocate_recorded(bytes);
    current.log->note(memory.get(), bytes);
    return memory;
  }

  static c10::DataPtr allocate_on_device(size_t bytes) {
    auto *block = allocate_block(AllocatorOverride::current_.device, bytes);
    block->user = kOverrideBlock;
    auto *address = kernel_address(block->address);
    return {address, address, &free_override_block, c10::Device(c10::DeviceType::CPU)};
  }

  // Raw memory may be freed outside of the override that allocated it, and the other way round.
  c10::DeleterFnPtr raw_deleter() const override {
    return [](void *address) {
      if (AllocatorOverride::current_.log != nullptr) {
        AllocatorOverride::current_.log->has_raw = true;
      }
      if (openreg_arena_device_of(openreg_device_view(address)) < 0) {
        if (!free_raw_host_block(address)) {
          the_override_allocator.free_of_host(address);
        }
      } else if (Reservations::current_ != nullptr) { // the reservation's owner frees it
        free_reserved(address);
      } else {
        free_override_block(address);
      }
    };
  }

  bool is_simple_data_ptr(const c10::DataPtr &pointer) const override {
    return pointer.get_deleter() != &free_override_block &&
           pointer.get_deleter() != &free_recorded && pointer.get_deleter() != &free_reserved &&
           host_->is_simple_data_ptr(pointer);
  }

  void copy_data(void *destination, const void *source, size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }

  static OverrideAllocator &instance() { return the_override_allocator; }

  void free_of_host(void *address) { host_->raw_deallocate(address); }

  void install() { host_ = replace_cpu_allocator(this); }

private:
  // The tensor, or the holder of raw memory, no longer needs it. After the kernel this has no
  // effect.
  static void free_reserved(void *address) {
    if (Reservations::current_ == nullptr) {
      return;
    }
    for (auto &reservation : Reservations::current_->reservations_) {
      reservation.is_held &= reservation.memory.kernel_address != address;
    }
  }

  c10::DataPtr allocate_recorded(size_t bytes) {
    auto *address = host_->raw_allocate(bytes);
    return {address, address, &free_recorded, c10::Device(c10::DeviceType::CPU)};
  }

  // Counts the allocation.
  static bool goes_to_device(Placement &placement, size_t bytes) {
    if (bytes <= placement.host_bytes) {
      return false;
    }
    if (placement.of_bytes != 0) {
      const bool is_first = placement.of_bytes == bytes;
      placement.of_bytes = is_first ? std::numeric_limits<size_t>::max() : placement.of_bytes;
      return is_first;
    }
    const bool is_result = (placement.nth & 1) != 0;
    placement.nth >>= 1; // all bits stay set
    return is_result;
  }

  static bool matches(const Reservations::Reservation &reservation, size_t number) {
    const auto &which = reservation.allocation;
    return which.kind == AllocationIndex::Kind::kNth
               ? which.n == number
               : which.kind == AllocationIndex::Kind::kFirstOfItsSize && !reservation.is_held;
  }

  c10::DataPtr allocate_reserved(size_t bytes) {
    auto &reservations = *Reservations::current_;
    if (bytes == 0) {
      return host_->allocate(bytes);
    }
    const auto number = reservations.allocations_++;
    for (auto &reservation : reservations.reservations_) {
      if (reservation.memory.bytes == bytes && matches(reservation, number)) {
        auto *address = reservation.memory.kernel_address;
        reservation.is_held = true;
        return {address, address, &free_reserved, c10::Device(c10::DeviceType::CPU)};
      }
    }
    return host_->allocate(bytes);
  }

  static OverrideAllocator the_override_allocator;
  c10::Allocator *host_ = nullptr;
};

// Memory for a tensor that a kernel resizes.
class ResizeAllocator final : public c10::Allocator {
public:
  c10::DataPtr allocate(size_t bytes) override {
    return bytes != 0 && AllocatorOverride::current_.where == AllocatorOverride::Where::kDevice
               ? OverrideAllocator::allocate_on_device(bytes)
               : OverrideAllocator::instance().allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return OverrideAllocator::instance().raw_deleter();
  }
  bool is_simple_data_ptr(const c10::DataPtr &pointer) const override {
    return OverrideAllocator::instance().is_simple_data_ptr(pointer);
  }
  void copy_data(void *destination, const void *source, size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }
};

namespace {
DeviceAllocator the_device_allocator;
ResizeAllocator the_resize_allocator;
} // namespace

OverrideAllocator OverrideAllocator::the_override_allocator;

constinit thread_local AllocatorOverride::Target AllocatorOverride::current_ = {
    AllocatorOverride::Where::kHost, -1, {}, nullptr};
constinit thread_local Reservations *Reservations::current_ = nullptr;
constinit thread_local PreparedBlocks *PreparedBlocks::current_ = nullptr;

void free_recorded(void *address) {
  if (auto *log = AllocatorOverride::current_.log; log != nullptr) {
    log->note_free(address);
  }
  OverrideAllocator::instance().free_of_host(address);
}

openreg_block *allocate_block(c10::DeviceIndex device, int stream, size_t bytes) {
  require_allocator_settings();
  const MemoryStackScope recorded(MemoryStackScope::kAllocate);
  openreg_block *block = nullptr;
  const auto status = openreg_block_allocate(device, stream, bytes, &block);
  if (status == OPENREG_OUT_OF_MEMORY) [[unlikely]] {
    check(openreg_device_create_context(device)); // the context's memory may be what did not fit
    raise_out_of_memory(device);
  }
  check(status);
  notify_observers([block](Observer &observer) { observer.allocated(*block); });
  if (c10::memoryProfilingEnabled()) [[unlikely]] {
    report_to_profiler(block, static_cast<int64_t>(block->bytes));
  }
  return block;
}

openreg_block *allocate_block(c10::DeviceIndex device, size_t bytes) {
  int stream = OPENREG_STREAM_DEFAULT;
  check(openreg_stream_current(device, &stream));
  return allocate_block(device, stream, bytes);
}

openreg_block *PreparedBlocks::take(c10::DeviceIndex device, size_t bytes) {
  if (current_ != nullptr) {
    for (auto &block : current_->blocks_) {
      if (block != nullptr && block->requested_bytes == bytes) {
        return block.release();
      }
    }
  }
  return allocate_block(device, bytes);
}

c10::DeviceAllocator *device_allocator() {
  return &the_device_allocator;
}

c10::Allocator *override_allocator() {
  return &OverrideAllocator::instance();
}

c10::Allocator *resize_allocator() {
  return &the_resize_allocator;
}

void install_allocators() {
  c10::SetAllocator(kDeviceType, &the_device_allocator);
  OverrideAllocator::instance().install();
}

} // namespace openreg
