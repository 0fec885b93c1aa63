#include "memory/out_of_memory.h"

#include <c10/core/Allocator.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "allocator/allocator.h"
#include "memory/memory.h"
#include "core/status.h"

namespace openreg {

namespace {

constexpr uint64_t kGranule = 2ULL << 20; // what memory is reserved in
constexpr size_t kExabyte = 1ULL << 60;   // CUDA prints no sizes from there on

std::mutex observers_mutex;
std::vector<OutOfMemoryObserver> &observers() {
  static auto *const all = new std::vector<OutOfMemoryObserver>(); // may hold Python objects
  return *all;
}

// Sizes as CUDA's allocator prints them.
std::string format_size(uint64_t bytes) {
  std::ostringstream text;
  text.precision(2);
  text << std::fixed;
  if (bytes <= 1024) {
    text << bytes << " bytes";
  } else if (bytes <= 1024 * 1024) {
    text << static_cast<double>(bytes) / 1024.0 << " KiB";
  } else if (bytes <= 1024 * 1024 * 1024ULL) {
    text << static_cast<double>(bytes) / 1048576.0 << " MiB";
  } else {
    text << static_cast<double>(bytes) / 1073741824.0 << " GiB";
  }
  return text.str();
}

struct Pictures {
  openreg_ledger_snapshot *first = nullptr;
  int count = 0;
  ~Pictures() { openreg_ledger_free_snapshots(first, count); }
};

// This process's group, as the ledger shows it; null when it cannot be looked at.
const openreg_ledger_snapshot *own_group(Pictures &pictures) {
  const char *problem = nullptr;
  if (openreg_ledger_list(&pictures.first, &pictures.count, &problem) != OPENREG_OK) {
    return nullptr;
  }
  for (int i = 0; i < pictures.count; ++i) {
    const auto &picture = pictures.first[i];
    if (std::any_of(picture.processes, picture.processes + picture.process_count,
                    [](const auto &process) { return process.pid == getpid(); })) {
      return &picture;
    }
  }
  return nullptr;
}

std::string sentence_of(int pid, uint64_t bytes) {
  return "Process " + std::to_string(pid) + " has " + format_size(bytes) + " memory in use. ";
}

// One sentence for each process that has memory of the device; this one's is always there.
std::string sentences_of_processes(int device, uint64_t reserved) {
  Pictures pictures;
  const auto *const group = own_group(pictures);
  std::string others, own = sentence_of(getpid(), reserved);
  for (int i = 0; group != nullptr && i < group->process_count; ++i) {
    const auto &process = group->processes[i];
    if (process.pid != getpid() && process.bytes[device] > 0) {
      others += sentence_of(process.pid, process.bytes[device]);
    }
  }
  return others + own;
}

// Free memory of pools, which only they can use. CUDA, too, calls it allocated.
uint64_t kept_by_pools(int device) {
  openreg_memory_snapshot snapshot;
  check(openreg_memory_take_snapshot(device, &snapshot));
  uint64_t bytes = 0;
  for (size_t i = 0; i < snapshot.segment_count; ++i) {
    const auto &segment = snapshot.segments[i];
    bytes += segment.mempool != 0 ? segment.bytes - segment.active_bytes : 0;
  }
  openreg_memory_free_snapshot(&snapshot);
  return bytes;
}

} // namespace

void attach_out_of_memory_observer(OutOfMemoryObserver observer) {
  const std::lock_guard guard(observers_mutex);
  observers().push_back(std::move(observer));
}

void raise_out_of_memory(c10::DeviceIndex device, size_t bytes) {
  TORCH_CHECK_WITH(OutOfMemoryError, bytes < kExabyte,
                   "openreg out of memory. Tried to allocate more than 1EB memory.");
  uint64_t free = 0, total = 0;
  check(openreg_ledger_query(device, &free, &total));
  openreg_memory_stats stats;
  check(openreg_memory_get_stats(device, &stats));
  double fraction = 1;
  check(openreg_memory_get_fraction(device, &fraction));
  const auto allocated = static_cast<uint64_t>(stats.allocated_bytes[OPENREG_POOL_ALL].current);
  const auto reserved = static_cast<uint64_t>(stats.reserved_bytes[OPENREG_POOL_ALL].current);
  const auto limit = static_cast<uint64_t>(fraction * static_cast<double>(total));
  const auto tried = (bytes + kGranule - 1) / kGranule * kGranule;
  const auto allowed = fraction < 1 ? format_size(limit) + " allowed; " : std::string();
  const auto processes = sentences_of_processes(device, reserved);
  const auto in_pools = kept_by_pools(device);
  const auto pools = in_pools > 0 ? "with " + format_size(in_pools) +
                                        " allocated in private pools (e.g., MemPool), "
                                  : std::string();

  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), allocated, reserved,
                                   {kDeviceType, device});
  const auto called = [] {
    const std::lock_guard guard(observers_mutex);
    return observers();
  }();
  {
    const Redirection to_host(-1); // a kernel may be running, but what observers allocate is theirs
    for (const auto &observer : called) {
      observer(device, static_cast<int64_t>(tried),
               static_cast<int64_t>(fraction < 1 ? limit : total), static_cast<int64_t>(free));
    }
  }
  TORCH_CHECK_WITH(OutOfMemoryError, false, "openreg out of memory. Tried to allocate ",
                   format_size(tried), ". GPU ", static_cast<int>(device),
                   " has a total capacity of ", format_size(total), " of which ", format_size(free),
                   " is free. ", processes, allowed, "Of the allocated memory ",
                   format_size(allocated), " is allocated by PyTorch, ", pools, "and ",
                   format_size(reserved - allocated - std::min(in_pools, reserved - allocated)),
                   " is reserved by PyTorch but unallocated.");
}

} // namespace openreg
