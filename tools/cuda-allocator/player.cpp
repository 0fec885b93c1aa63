// player CAPACITY SETTINGS: drives PyTorch's own CUDA caching allocator with a trace, over a stub
// of CUDA. test/allocator/policy/README.md documents the protocol. SETTINGS replace the variable
// PYTORCH_CUDA_ALLOC_CONF. With PLAYER_VERBOSE the messages of OutOfMemoryError go to standard
// error.

#include "stub.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/PeerToPeerAccess.h>
#include <c10/util/Exception.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

// In libc10_cuda, but in no header; libtorch_cuda sets it.
namespace c10::cuda::_internal {
C10_CUDA_API void setHasPrimaryContext(bool (*has)(DeviceIndex));
}

namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;
using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;

constexpr char kSettings[] = "PYTORCH_CUDA_ALLOC_CONF";
constexpr int kStreams = 8;

std::map<uint64_t, c10::DataPtr> blocks;

[[noreturn]] void end(const std::string &message) {
  std::cerr << "player: " << message << std::endl;
  std::_Exit(2);
}

// ---- streams ------------------------------------------------------------------------------------

// The allocator iterates over the streams that have events in the order of a hash table. With these
// handles that is the order of the streams' numbers, once the table has room for all of them.
c10::cuda::CUDAStream stream_of(int number) {
  static constexpr uintptr_t kHandles[kStreams] = {0,      0x1a50, 0x2c30, 0x3d80,
                                                   0x4f60, 0x60b0, 0x7290, 0x83e0};
  if (number < 0 || number >= kStreams) {
    end("stream " + std::to_string(number) + ": expected 0 to 7");
  }
  if (number == 0) {
    return c10::cuda::getDefaultCUDAStream(0);
  }
  return c10::cuda::getStreamFromExternal(reinterpret_cast<cudaStream_t>(kHandles[number]), 0);
}

uint64_t handle_of(int number) {
  return reinterpret_cast<uint64_t>(stream_of(number).stream());
}

int number_of(const void *stream) {
  int number = 0;
  while (stream_of(number).stream() != stream) {
    number++;
  }
  return number;
}

void use_all_streams() {
  for (int number : {0, 1}) {
    c10::cuda::setCurrentCUDAStream(stream_of(number));
    const auto block = allocator::get()->allocate(1);
    for (int other = 0; other < kStreams; other++) {
      allocator::recordStream(block, stream_of(other));
    }
  }
}

// Makes room for all streams in the hash table, and leaves no other trace.
void warm_up() {
  try {
    use_all_streams();
  } catch (const c10::OutOfMemoryError &) { // a second stream needs a second segment
  }
  allocator::emptyCache();
  allocator::resetPeakStats(0);
  allocator::resetAccumulatedStats(0);
}

// ---- statistics ---------------------------------------------------------------------------------

std::ostream &operator<<(std::ostream &out, const Stat &stat) {
  return out << stat.current << ' ' << stat.peak << ' ' << stat.allocated << ' ' << stat.freed
             << ' ';
}

std::ostream &operator<<(std::ostream &out, const StatArray &stats) {
  for (const Stat &stat : stats) {
    out << stat;
  }
  return out;
}

void print_statistics() {
  const auto stats = allocator::getDeviceStats(0);
  std::cout << stats.allocation << stats.segment << stats.active << stats.inactive_split
            << stats.allocated_bytes << stats.reserved_bytes << stats.active_bytes
            << stats.inactive_split_bytes << stats.requested_bytes << stats.oversize_allocations
            << stats.oversize_segments << stats.num_alloc_retries << ' ' << stats.num_ooms << ' '
            << stats.num_sync_all_streams << ' ' << stats.num_device_alloc << ' '
            << stats.num_device_free << ' ' << stats.max_split_size;
}

int64_t allocated_bytes_ever() {
  return allocator::getDeviceStats(0).allocated_bytes[0].allocated;
}

// ---- snapshots ----------------------------------------------------------------------------------

void print_segment(std::ostream &out, const allocator::SegmentInfo &segment) {
  out << segment.address << ' ' << segment.total_size << ' ' << number_of(segment.stream) << ' '
      << (segment.is_large ? "large" : "small") << ' ' << segment.is_expandable << ' '
      << segment.owner_private_pool_id.second;
  size_t address = segment.address;
  for (const auto &block : segment.blocks) {
    const bool is_free = !block.allocated && !block.active;
    out << ' ' << address << ',' << block.size << ',' << (is_free ? 0 : block.requested_size) << ','
        << (is_free           ? "free"
            : block.allocated ? "allocated"
                              : "awaiting");
    address += block.size;
  }
}

std::string snapshot() {
  auto segments = allocator::snapshot({0, 0}, false).segments;
  std::ranges::sort(segments, {}, &allocator::SegmentInfo::address);
  std::ostringstream out;
  out << "snapshot ";
  for (const auto &segment : segments) {
    out << (&segment == &segments.front() ? "" : "|");
    print_segment(out, segment);
  }
  return out.str();
}

// ---- out of memory ------------------------------------------------------------------------------

struct OutOfMemory {
  bool is_reported = false;
  size_t tried, allowed, free; // allowed: the capacity where there is no limit
} error;

void note_refusal(int64_t, size_t tried, size_t allowed, size_t free) {
  error = {true, tried, allowed, free};
}

// Formats sizes as the message does.
std::string size_text(uint64_t bytes) {
  constexpr double kKibi = 1024;
  if (bytes <= kKibi) {
    return std::to_string(bytes) + " bytes";
  }
  double size = bytes / kKibi;
  const char *unit = "KiB";
  for (const char *larger : {"MiB", "GiB"}) {
    if (size > kKibi) {
      size /= kKibi;
      unit = larger;
    }
  }
  char text[64];
  snprintf(text, sizeof text, "%.2f %s", size, unit);
  return text;
}

uint64_t free_bytes_of_private_pools() {
  uint64_t bytes = 0;
  for (const auto &segment : allocator::snapshot({0, 0}, false).segments) {
    for (const auto &block : segment.blocks) {
      if (segment.owner_private_pool_id.second != 0 && !block.active && !block.allocated) {
        bytes += block.size;
      }
    }
  }
  return bytes;
}

// Extracts the numbers of a message, in bytes. Checks that they agree with the statistics; the
// message counts free blocks of private pools as allocated.
std::string out_of_memory_answer(const std::string &message) {
  const auto stats = allocator::getDeviceStats(0);
  const uint64_t in_pools = free_bytes_of_private_pools();
  const uint64_t allocated = stats.allocated_bytes[0].current + in_pools;
  const uint64_t unallocated = stats.reserved_bytes[0].current - allocated;
  const bool is_limited = message.find(" allowed; ") != std::string::npos;
  const bool names_pools = in_pools != 0 || message.find(" private pools") != std::string::npos;
  for (const std::string &part :
       {"Tried to allocate " + size_text(error.tried) + ".",
        "of which " + size_text(error.free) + " is free.",
        is_limited ? size_text(error.allowed) + " allowed; " : "",
        "Of the allocated memory " + size_text(allocated) + " is allocated by PyTorch",
        names_pools ? "with " + size_text(in_pools) + " allocated in private pools" : "",
        "and " + size_text(unallocated) + " is reserved by PyTorch but unallocated"}) {
    if (message.find(part) == std::string::npos) {
      end("\"" + part + "\" is not in: " + message);
    }
  }
  std::ostringstream out;
  out << "oom " << error.tried << ' ' << error.free << ' '
      << (is_limited ? static_cast<int64_t>(error.allowed) : -1) << ' ' << allocated << ' '
      << in_pools << ' ' << unallocated;
  return out.str();
}

// ---- commands -----------------------------------------------------------------------------------

template <class T> T next(std::istream &words) {
  T word;
  if (!(words >> word)) {
    end("an argument is missing, or not a number");
  }
  return word;
}

c10::MempoolId_t next_pool(std::istream &words) {
  return {0, next<uint64_t>(words)};
}

std::string allocate(std::istream &words) {
  const auto id = next<uint64_t>(words);
  const auto bytes = next<size_t>(words);
  c10::cuda::setCurrentCUDAStream(stream_of(next<int>(words)));
  const int64_t before = allocated_bytes_ever();
  auto block = allocator::get()->allocate(bytes);
  std::ostringstream out;
  out << "block " << reinterpret_cast<uintptr_t>(block.get()) << ' '
      << allocated_bytes_ever() - before;
  blocks[id] = std::move(block);
  return out.str();
}

void record(std::istream &words) {
  const auto block = blocks.find(next<uint64_t>(words));
  const int stream = next<int>(words);
  if (block != blocks.end()) { // its allocation succeeded
    allocator::recordStream(block->second, stream_of(stream));
  }
}

void set(std::istream &words) {
  std::string settings;
  words >> settings; // may be empty
  c10::CachingAllocator::setAllocatorSettings(settings);
}

// Does what torch.cuda.MemPool and torch.cuda.use_mem_pool do; ~MemPool is pool_destroy and
// pool_empty.

void create_pool(std::istream &words) {
  const auto pool = next_pool(words);
  allocator::createOrIncrefPool(0, pool);
  if (next<bool>(words)) {
    allocator::setUseOnOOM(0, pool, true);
  }
  if (next<bool>(words)) {
    allocator::setNoSplit(0, pool);
  }
}

void begin_pool(std::istream &words) {
  allocator::beginAllocateToPool(0, next_pool(words), [](cudaStream_t) { return true; });
}

void end_pool(std::istream &words) {
  const auto pool = next_pool(words);
  allocator::endAllocateToPool(0, pool);
  allocator::releasePool(0, pool);
}

void destroy_pool(std::istream &words) {
  const auto pool = next_pool(words);
  allocator::setUseOnOOM(0, pool, false);
  allocator::releasePool(0, pool);
}

// Commands that are answered with ok.
const std::map<std::string, void (*)(std::istream &)> actions = {
    {"free", [](std::istream &words) { blocks.erase(next<uint64_t>(words)); }},
    {"record", record},
    {"hold", [](std::istream &words) { stub::hold(handle_of(next<int>(words))); }},
    {"go", [](std::istream &words) { stub::go(handle_of(next<int>(words))); }},
    {"empty", [](std::istream &) { allocator::emptyCache(); }},
    {"fraction", [](std::istream &words) { allocator::setMemoryFraction(next<double>(words), 0); }},
    {"settings", set},
    {"pool_create", create_pool},
    {"pool_begin", begin_pool},
    {"pool_end", end_pool},
    {"pool_destroy", destroy_pool},
    {"pool_empty", [](std::istream &words) { allocator::emptyCache(next_pool(words)); }},
    {"reset_peak", [](std::istream &) { allocator::resetPeakStats(0); }},
    {"reset_accumulated", [](std::istream &) { allocator::resetAccumulatedStats(0); }},
};

std::string act(const std::string &line) {
  std::istringstream words(line);
  const auto command = next<std::string>(words);
  if (command == "alloc") {
    return allocate(words);
  }
  if (command == "snapshot") {
    return snapshot();
  }
  const auto action = actions.find(command);
  if (action == actions.end()) {
    return "error no such command: " + command;
  }
  action->second(words);
  return "ok";
}

std::string text_of(const std::exception &error) {
  const auto *with_backtrace = dynamic_cast<const c10::Error *>(&error);
  return with_backtrace ? with_backtrace->what_without_backtrace() : error.what();
}

std::string error_answer(const std::exception &error) {
  std::string text = text_of(error);
  std::ranges::replace(text, '\n', ' ');
  return "error " + text;
}

std::string answer(const std::string &line) {
  error.is_reported = false;
  try {
    return act(line);
  } catch (const c10::OutOfMemoryError &error) {
    if (getenv("PLAYER_VERBOSE")) {
      std::cerr << text_of(error) << std::endl;
    }
    return error.is_reported ? out_of_memory_answer(text_of(error)) : error_answer(error);
  } catch (const std::exception &error) {
    return error_answer(error);
  }
}

// ---- the start ----------------------------------------------------------------------------------

// libc10_cuda reads the settings when it is loaded, which is before main: the program restarts
// itself.
void require_settings(char **arguments) {
  const char *settings = getenv(kSettings);
  if (settings && std::string(settings) == arguments[2]) {
    return;
  }
  setenv(kSettings, arguments[2], 1);
  execv("/proc/self/exe", arguments);
  end("/proc/self/exe cannot be started");
}

void start(uint64_t capacity) {
  unsetenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
  stub::set_capacity(capacity);
  c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
  allocator::init(1);
  c10::cuda::detail::init_p2p_access_cache(1);
  allocator::attachOutOfMemoryObserver(note_refusal);
  warm_up();
  stub::take_segments();
}

} // namespace

int main(int count, char **arguments) {
  if (count != 3) {
    end("usage: player CAPACITY SETTINGS");
  }
  require_settings(arguments);
  try {
    start(std::stoull(arguments[1]));
  } catch (const std::exception &error) {
    end(text_of(error));
  }
  for (std::string line; std::getline(std::cin, line);) {
    const std::string result = answer(line);
    std::cout << result << ';' << stub::take_segments() << ';';
    print_statistics();
    std::cout << std::endl;
  }
  std::_Exit(0); // without freeing the remaining blocks
}
