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

// The end of CUDA's sentence, which programs and tests look for.
constexpr const char *kDocumentation =
    "  See documentation for Memory Management  "
    "(https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-"
    "cuda-alloc-conf)";
constexpr size_t kExabyte = 1ULL << 60; // CUDA prints no sizes from there on

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

std::string sentence_of(const std::string &who, uint64_t bytes) {
  return who + " has " + format_size(bytes) + " memory in use. ";
}

// One sentence for each process that has memory of the device; this one's is always there.
std::string sentences_of_processes(int device, uint64_t reserved) {
  Pictures pictures;
  const auto *const group = own_group(pictures);
  openreg_device_properties properties;
  check(openreg_device_get_properties(device, &properties));
  const int number = properties.number_in_group;
  std::string others;
  uint64_t own = reserved;
  for (int i = 0; group != nullptr && i < group->process_count; ++i) {
    const auto &process = group->processes[i];
    if (process.pid == getpid()) {
      own = process.bytes[number];
    } else if (process.bytes[number] > 0) {
      others += sentence_of("Process " + std::to_string(process.pid), process.bytes[number]);
    }
  }
  return others + sentence_of("Including non-PyTorch memory, this process", own);
}

void call_observers(c10::DeviceIndex device, const openreg_memory_refusal &figures) {
  const auto called = [] {
    const std::lock_guard guard(observers_mutex);
    return observers();
  }();
  const Redirection to_host(-1); // a kernel may be running, but what observers allocate is theirs
  for (const auto &observer : called) {
    observer(device, static_cast<int64_t>(figures.tried_bytes),
             static_cast<int64_t>(std::min(figures.allowed_bytes, figures.capacity_bytes)),
             static_cast<int64_t>(figures.free_bytes));
  }
}

// CUDA counts the free memory of private pools, which only they can use, as allocated.
[[noreturn]] void raise(c10::DeviceIndex device, const openreg_memory_refusal &figures) {
  const auto allowed = figures.allowed_bytes == UINT64_MAX
                           ? std::string()
                           : format_size(figures.allowed_bytes) + " allowed; ";
  const auto allocated = figures.allocated_bytes + figures.mempool_bytes;
  const auto pools = figures.mempool_bytes > 0
                         ? "with " + format_size(figures.mempool_bytes) +
                               " allocated in private pools (e.g., " +
                               (in_cuda_mode() ? "CUDA Graphs" : "MemPool") + "), "
                         : std::string();
  TORCH_CHECK_WITH(OutOfMemoryError, false, platform_name(), " out of memory. Tried to allocate ",
                   format_size(figures.tried_bytes), ". GPU ", static_cast<int>(device),
                   " has a total capacity of ", format_size(figures.capacity_bytes), " of which ",
                   format_size(figures.free_bytes), " is free. ",
                   sentences_of_processes(device, figures.reserved_bytes), allowed,
                   "Of the allocated memory ", format_size(allocated), " is allocated by PyTorch, ",
                   pools, "and ", format_size(figures.reserved_bytes - allocated),
                   " is reserved by PyTorch but unallocated. If reserved but unallocated memory is "
                   "large try setting ",
                   in_cuda_mode() ? "PYTORCH_CUDA_ALLOC_CONF" : "PYTORCH_ALLOC_CONF",
                   "=expandable_segments:True to avoid fragmentation.",
                   in_cuda_mode() ? kDocumentation : "");
}

} // namespace

void attach_out_of_memory_observer(OutOfMemoryObserver observer) {
  const std::lock_guard guard(observers_mutex);
  observers().push_back(std::move(observer));
}

void raise_out_of_memory(c10::DeviceIndex device) {
  openreg_memory_refusal figures;
  openreg_memory_last_refusal(&figures);
  TORCH_CHECK_WITH(OutOfMemoryError, figures.bytes < kExabyte, platform_name(),
                   " out of memory. Tried to allocate more than 1EB memory.");
  TORCH_CHECK_WITH(OutOfMemoryError, !figures.is_rejection, platform_name(),
                   " out of memory. Allocation was preemptively rejected because it would "
                   "exceed per_process_memory_fraction limit. Requested size: ",
                   format_size(figures.bytes));
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(figures.rounded_bytes),
                                   figures.allocated_bytes, figures.reserved_bytes,
                                   {kDeviceType, device});
  call_observers(device, figures);
  raise(device, figures);
}

} // namespace openreg
