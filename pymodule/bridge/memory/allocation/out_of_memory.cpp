#include "memory/allocation/out_of_memory.h"

#include <c10/core/Allocator.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "allocator/allocator.h"
#include "memory/allocation/memory.h"
#include "core/status.h"

namespace openreg {

namespace {

// The end of CUDA's message, which programs and tests look for.
constexpr const char *kDocumentation =
    "  See documentation for Memory Management  "
    "(https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-"
    "cuda-alloc-conf)";
constexpr size_t kExabyte = 1ULL << 60; // CUDA prints no larger sizes

std::mutex observers_mutex;
std::vector<OutOfMemoryObserver> &out_of_memory_observers() {
  static auto *const all = new std::vector<OutOfMemoryObserver>(); // they may hold Python objects
  return *all;
}

// Formats sizes as CUDA's allocator does.
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

struct LedgerSnapshots {
  openreg_ledger_snapshot *first = nullptr;
  int count = 0;
  ~LedgerSnapshots() { openreg_ledger_free_snapshots(first, count); }
};

// Returns this process's group in the ledger, or null if it cannot be read.
const openreg_ledger_snapshot *own_group(LedgerSnapshots &snapshots) {
  const char *problem = nullptr;
  if (openreg_ledger_list(&snapshots.first, &snapshots.count, &problem) != OPENREG_OK) {
    return nullptr;
  }
  for (int i = 0; i < snapshots.count; ++i) {
    const auto &snapshot = snapshots.first[i];
    if (std::any_of(snapshot.processes, snapshot.processes + snapshot.process_count,
                    [](const auto &process) { return process.pid == getpid(); })) {
      return &snapshot;
    }
  }
  return nullptr;
}

std::string describe_process(const std::string &who, uint64_t bytes) {
  return who + " has " + format_size(bytes) + " memory in use. ";
}

// Returns one sentence for each process that holds memory of the device, and always one for this
// process.
std::string describe_processes(int device, uint64_t reserved) {
  LedgerSnapshots snapshots;
  const auto *const group = own_group(snapshots);
  openreg_device_properties properties;
  check(openreg_device_get_properties(device, &properties));
  const int number = properties.group_index;
  std::string others;
  uint64_t own = reserved;
  for (int i = 0; group != nullptr && i < group->process_count; ++i) {
    const auto &process = group->processes[i];
    if (process.pid == getpid()) {
      own = process.bytes[number];
    } else if (process.bytes[number] > 0) {
      others += describe_process("Process " + std::to_string(process.pid), process.bytes[number]);
    }
  }
  return others + describe_process("Including non-PyTorch memory, this process", own);
}

void call_observers(c10::DeviceIndex device, const openreg_out_of_memory_info &info) {
  const auto called = [] {
    const std::lock_guard guard(observers_mutex);
    return out_of_memory_observers();
  }();
  const AllocatorOverride to_host; // a kernel may be running, but the observers' allocations
                                   // belong on the host
  for (const auto &observer : called) {
    observer(device, static_cast<int64_t>(info.tried_bytes),
             static_cast<int64_t>(std::min(info.allowed_bytes, info.capacity_bytes)),
             static_cast<int64_t>(info.free_bytes));
  }
}

// Like CUDA, counts the free memory of private pools as allocated, because only those pools can use
// it.
[[noreturn]] void raise(c10::DeviceIndex device, const openreg_out_of_memory_info &info) {
  const auto allowed = info.allowed_bytes == UINT64_MAX
                           ? std::string()
                           : format_size(info.allowed_bytes) + " allowed; ";
  const auto allocated = info.allocated_bytes + info.mempool_bytes;
  const auto pools = info.mempool_bytes > 0
                         ? "with " + format_size(info.mempool_bytes) +
                               " allocated in private pools (e.g., " +
                               (in_cuda_mode() ? "CUDA Graphs" : "MemPool") + "), "
                         : std::string();
  TORCH_CHECK_WITH(
      OutOfMemoryError, false, platform_name(), " out of memory. Tried to allocate ",
      format_size(info.tried_bytes), ". GPU ", static_cast<int>(device),
      " has a total capacity of ", format_size(info.capacity_bytes), " of which ",
      format_size(info.free_bytes), " is free. ", describe_processes(device, info.reserved_bytes),
      allowed, "Of the allocated memory ", format_size(allocated), " is allocated by PyTorch, ",
      pools, "and ", format_size(info.reserved_bytes - allocated),
      " is reserved by PyTorch but unallocated. If reserved but unallocated memory is "
      "large try setting ",
      in_cuda_mode() ? "PYTORCH_CUDA_ALLOC_CONF" : "PYTORCH_ALLOC_CONF",
      "=expandable_segments:True to avoid fragmentation.", in_cuda_mode() ? kDocumentation : "");
}

} // namespace

void attach_out_of_memory_observer(OutOfMemoryObserver observer) {
  const std::lock_guard guard(observers_mutex);
  out_of_memory_observers().push_back(std::move(observer));
}

void raise_out_of_memory(c10::DeviceIndex device) {
  openreg_out_of_memory_info info;
  openreg_memory_last_out_of_memory(&info);
  TORCH_CHECK_WITH(OutOfMemoryError, info.bytes < kExabyte, platform_name(),
                   " out of memory. Tried to allocate more than 1EB memory.");
  TORCH_CHECK_WITH(OutOfMemoryError, !info.is_rejection, platform_name(),
                   " out of memory. Allocation was preemptively rejected because it would "
                   "exceed per_process_memory_fraction limit. Requested size: ",
                   format_size(info.bytes));
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(info.rounded_bytes), info.allocated_bytes,
                                   info.reserved_bytes, {kDeviceType, device});
  call_observers(device, info);
  raise(device, info);
}

} // namespace openreg
