#include "sanitizer/host_memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "device/device.h"
#include "device/faults.h"
#include "sanitizer/accesses.h"
#include "sanitizer/descriptions.h"
#include "sanitizer/call_sites.h"

namespace openreg {

namespace {

// A range of whole pages.
struct Pages {
  uint64_t begin, end;

  bool touch(const Pages &other) const { return begin < other.end && other.begin < end; }
  bool operator==(const Pages &) const = default;
};

struct ProtectedPages {
  Pages pages;
  int protection; // PROT_READ or PROT_NONE

  bool operator==(const ProtectedPages &) const = default;
};

// What a stream's work may do to these pages now.
struct DeviceAccess {
  Pages pages;
  int protection;

  bool operator==(const DeviceAccess &) const = default;
};

// The fault handler takes this lock. So a thread that holds it must not wait for anything.
std::mutex mutex;
std::map<uint64_t, size_t> &pinned_blocks =
    *new std::map<uint64_t, size_t>(); // size in bytes, by address
std::atomic<size_t> pinned_count{0};
std::vector<ProtectedPages> &protected_pages = *new std::vector<ProtectedPages>();
std::atomic<size_t> protected_count{0};
std::vector<DeviceAccess> &device_accesses = *new std::vector<DeviceAccess>();
std::atomic<SanitizerSession *> fault_session{nullptr}; // null: no page is protected
constinit thread_local bool in_fault = false;
constexpr int kNotOpened = -2;
int memory_file = kNotOpened; // /proc/self/mem; -1: not available

uint64_t page_bytes() {
  static const auto bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

uint64_t round_down(uint64_t address) {
  return address / page_bytes() * page_bytes();
}

uint64_t round_up(uint64_t address) {
  return round_down(address + page_bytes() - 1);
}

// Returns the block that contains an address, or the map's end.
auto block_around(uint64_t address) {
  auto next = pinned_blocks.upper_bound(address);
  if (next == pinned_blocks.begin()) {
    return pinned_blocks.end();
  }
  --next;
  return address - next->first < next->second ? next : pinned_blocks.end();
}

// ---- protection ---------------------------------------------------------------------------------

int protection_of(const Pages &pages) {
  int protection = PROT_READ | PROT_WRITE;
  for (const auto &each : protected_pages) {
    if (each.pages.touch(pages)) {
      protection &= each.protection;
    }
  }
  for (const auto &open : device_accesses) {
    if (open.pages.touch(pages)) {
      protection |= open.protection;
    }
  }
  return protection;
}

// Sets the protection of pages. If mprotect fails for lack of memory, they stay accessible.
void apply_protection(const Pages &pages) {
  std::vector<uint64_t> bounds{pages.begin, pages.end};
  const auto add = [&](const Pages &other) {
    for (const auto bound : {other.begin, other.end}) {
      if (pages.begin < bound && bound < pages.end) {
        bounds.push_back(bound);
      }
    }
  };
  for (const auto &each : protected_pages) {
    add(each.pages);
  }
  for (const auto &each : device_accesses) {
    add(each.pages);
  }
  std::sort(bounds.begin(), bounds.end());
  for (size_t i = 0; i + 1 < bounds.size(); ++i) {
    const Pages part{bounds[i], bounds[i + 1]};
    if (part.begin < part.end) {
      (void)mprotect(reinterpret_cast<void *>(part.begin), part.end - part.begin,
                     protection_of(part));
    }
  }
}

template <class Is> void unprotect_if(Is predicate) {
  std::vector<Pages> unprotected;
  std::erase_if(protected_pages, [&](const ProtectedPages &each) {
    const bool matches = predicate(each);
    if (matches) {
      unprotected.push_back(each.pages);
    }
    return matches;
  });
  protected_count.store(protected_pages.size());
  for (const auto &pages : unprotected) {
    apply_protection(pages);
  }
}

// ---- faults -------------------------------------------------------------------------------------

// Reports an access of the host to one byte.
void report_host_access(SanitizerSession &session, uint64_t address, unsigned mode) {
  Accesses accesses;
  accesses.add(address, 1, mode, describe("the program itself"));
  const openreg_sanitizer_launch launch{.thread = session.host(),
                                        .submitter = nullptr,
                                        .call_site = current_call_site(),
                                        .accesses = accesses.data(),
                                        .count = accesses.size()};
  (void)openreg_sanitizer_check_launch(session.sanitizer(),
                                       &launch); // ignored without memory for it
}

// Runs code on a stack of its own. A signal handler's stack may be small, and a report needs much.
class AltStack {
public:
  template <class Do> static void run(Do &act) {
    constexpr size_t kBytes = size_t{1} << 20;
    void *const stack = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) {
      return;
    }
    ucontext_t here, there;
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = kBytes;
    there.uc_link = &here;
    entered = &act;
    makecontext(&there, &enter<Do>, 0);
    swapcontext(&here, &there);
    munmap(stack, kBytes);
  }

private:
  template <class Do> static void enter() { (*static_cast<Do *>(entered))(); }

  static constinit thread_local void *entered;
};

constinit thread_local void *AltStack::entered = nullptr;

// Handles a fault. Pages may have been protected for several accesses; one finding is enough for
// all of them.
bool resolve(void *address, openreg_fault_access access) {
  const auto at = reinterpret_cast<uint64_t>(address);
  auto *const session = fault_session.load();
  bool reads_only = true;
  {
    const std::lock_guard lock(mutex);
    if (block_around(at) == pinned_blocks.end() &&
        block_around(round_down(at)) == pinned_blocks.end()) {
      return false;
    }
    const Pages byte{at, at + 1};
    for (const auto &each : protected_pages) {
      reads_only = reads_only && !(each.pages.touch(byte) && each.protection == PROT_NONE);
    }
    const auto before = protected_pages.size();
    unprotect_if([&](const ProtectedPages &each) { return each.pages.touch(byte); });
    if (protected_pages.size() == before) { // another thread made it accessible in the meantime
      return true;
    }
  }
  const bool writes =
      access == OPENREG_FAULT_WRITE || (access == OPENREG_FAULT_UNKNOWN && reads_only);
  if (session != nullptr && !in_fault && !ObserverPause::any()) {
    auto report = [&] {
      report_host_access(*session, at, writes ? OPENREG_SANITIZER_WRITE : OPENREG_SANITIZER_READ);
    };
    in_fault = true;
    AltStack::run(report);
    in_fault = false;
  }
  return true;
}

// A child of fork has the parent's memory, but none of its pending work.
void watch_forks() {
  static const bool is_first = [] {
    pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); },
                   [] {
                     fault_session.store(nullptr);
                     if (memory_file >= 0) { // the parent's memory
                       close(memory_file);
                     }
                     memory_file = kNotOpened;
                     device_accesses.clear();
                     unprotect_if([](const ProtectedPages &) { return true; });
                     pinned_blocks.clear();
                     pinned_count.store(0);
                     mutex.unlock();
                   });
    return true;
  }();
  (void)is_first;
}

bool is_dense(const openreg_sanitizer_region &region) {
  uint64_t bytes = region.element_bytes;
  for (int i = region.dims - 1; i >= 0; --i) {
    if (region.sizes[i] != 1 && region.strides[i] != static_cast<int64_t>(bytes)) {
      return false;
    }
    bytes *= static_cast<uint64_t>(region.sizes[i]);
  }
  return true;
}

uint64_t bytes_of(const openreg_sanitizer_region &region) {
  uint64_t bytes = region.element_bytes;
  for (int i = 0; i < region.dims; ++i) {
    bytes *= static_cast<uint64_t>(region.sizes[i]);
  }
  return bytes;
}

// Nothing else uses the rest of a block's last page.
Pages whole_pages(uint64_t begin, uint64_t end, uint64_t end_of_block) {
  return {round_up(begin), end == end_of_block ? round_up(end) : round_down(end)};
}

DeviceAccess access_pages(uint64_t begin, size_t bytes, bool writes) {
  return {{round_down(begin), round_up(begin + bytes)},
          writes ? PROT_READ | PROT_WRITE : PROT_READ};
}

} // namespace

// ---- public functions ---------------------------------------------------------------------------

void set_page_protection(SanitizerSession *session, bool close) {
  watch_forks();
  fault_session.store(close ? session : nullptr);
}

void forget_host_memory() {
  const std::lock_guard lock(mutex);
  fault_session.store(nullptr);
  unprotect_if([](const ProtectedPages &) { return true; });
  pinned_blocks.clear();
  pinned_count.store(0);
}

void add_pinned(SanitizerSession &session, const void *address, size_t bytes) {
  if (bytes == 0 || ObserverPause::any()) {
    return;
  }
  openreg_sanitizer_block block{};
  block.address = reinterpret_cast<uint64_t>(address);
  block.bytes = bytes;
  block.call_site = current_call_site();
  block.owner = SanitizerSession::kHostTag;
  // The host's own writes are not seen, so pinned memory is never uninitialized. If this fails for
  // lack of memory, the sanitizer ignores the block.
  if (openreg_sanitizer_alloc(session.sanitizer(), &block, /*is_initialised=*/true) != OPENREG_OK) {
    return;
  }
  const std::lock_guard lock(mutex);
  pinned_blocks[block.address] = bytes;
  pinned_count.store(pinned_blocks.size());
}

// The allocator reuses the memory only when the streams are done with it.
void remove_pinned(SanitizerSession &session, const void *address) {
  const auto begin = reinterpret_cast<uint64_t>(address);
  size_t bytes = 0;
  {
    const std::lock_guard lock(mutex);
    const auto block = pinned_blocks.find(begin);
    if (block == pinned_blocks.end()) {
      return;
    }
    bytes = block->second;
    const Pages pages{begin, round_up(begin + bytes)};
    unprotect_if([&](const ProtectedPages &each) { return each.pages.touch(pages); });
    pinned_blocks.erase(block);
    pinned_count.store(pinned_blocks.size());
  }
  openreg_sanitizer_free(session.sanitizer(), begin, 0);
  openreg_sanitizer_forget(session.sanitizer(), begin, bytes);
}

bool is_known_pinned(const at::Tensor &tensor) {
  if (pinned_count.load(std::memory_order_relaxed) == 0 || !tensor.defined() || !tensor.is_cpu() ||
      tensor.layout() != c10::kStrided || !tensor.has_storage()) {
    return false;
  }
  const auto address = reinterpret_cast<uint64_t>(tensor.storage().data());
  const std::lock_guard lock(mutex);
  return block_around(address) != pinned_blocks.end();
}

void protect_pages(SanitizerSession &session, const openreg_sanitizer_access *accesses,
                   size_t count) {
  if (pinned_count.load(std::memory_order_relaxed) == 0 || fault_session.load() == nullptr) {
    return;
  }
  openreg_fault_set_resolver(&resolve);
  for (size_t i = 0; i < count; ++i) {
    const auto &region = accesses[i].region;
    const bool writes = (accesses[i].mode & OPENREG_SANITIZER_WRITE) != 0;
    if (!is_dense(region) || !openreg_sanitizer_would_conflict(
                                 session.sanitizer(), session.host(), &region,
                                 writes ? OPENREG_SANITIZER_READ : OPENREG_SANITIZER_WRITE)) {
      continue;
    }
    const std::lock_guard lock(mutex);
    const auto block = block_around(region.address);
    if (block == pinned_blocks.end()) {
      continue;
    }
    const auto pages = whole_pages(region.address, region.address + bytes_of(region),
                                   block->first + block->second);
    const ProtectedPages added{pages, writes ? PROT_NONE : PROT_READ};
    if (pages.begin < pages.end &&
        std::find(protected_pages.begin(), protected_pages.end(), added) == protected_pages.end()) {
      protected_pages.push_back(added);
      protected_count.store(protected_pages.size());
      apply_protection(pages);
    }
  }
}

void unprotect_completed(SanitizerSession &session) {
  if (protected_count.load(std::memory_order_relaxed) == 0) {
    return;
  }
  const std::lock_guard lock(mutex);
  unprotect_if([&](const ProtectedPages &each) {
    const auto block = block_around(each.pages.begin);
    const auto end = block == pinned_blocks.end()
                         ? each.pages.end
                         : std::min(each.pages.end, block->first + block->second);
    const openreg_sanitizer_region region{.address = each.pages.begin,
                                          .element_bytes = end - each.pages.begin,
                                          .dims = 0,
                                          .sizes = nullptr,
                                          .strides = nullptr};
    return !openreg_sanitizer_would_conflict(
        session.sanitizer(), session.host(), &region,
        each.protection == PROT_NONE ? OPENREG_SANITIZER_READ : OPENREG_SANITIZER_WRITE);
  });
}

void begin_device_access(const void *address, size_t bytes, bool writes) {
  const auto begin = reinterpret_cast<uint64_t>(address);
  if (bytes == 0 || pinned_count.load(std::memory_order_relaxed) == 0) {
    return;
  }
  const std::lock_guard lock(mutex);
  if (block_around(begin) != pinned_blocks.end()) {
    device_accesses.push_back(access_pages(begin, bytes, writes));
    apply_protection(device_accesses.back().pages);
  }
}

void end_device_access(const void *address, size_t bytes, bool writes) {
  const auto given_back = access_pages(reinterpret_cast<uint64_t>(address), bytes, writes);
  const std::lock_guard lock(mutex);
  const auto open = std::find(device_accesses.begin(), device_accesses.end(), given_back);
  if (open != device_accesses.end()) {
    device_accesses.erase(open);
    apply_protection(given_back.pages);
  }
}

// Writes through the file of the process's memory, as debuggers do. It ignores the protection.
bool write_to_protected(void *to, const void *from, size_t bytes) {
  const auto address = reinterpret_cast<uint64_t>(to);
  int file = -1;
  {
    const std::lock_guard lock(mutex);
    if (fault_session.load() == nullptr || block_around(address) == pinned_blocks.end()) {
      return false;
    }
    if (memory_file == kNotOpened) {
      memory_file = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    }
    file = memory_file;
  }
  const auto *const bytes_from = static_cast<const char *>(openreg_kernel_view(from));
  size_t done = 0;
  while (file >= 0 && done < bytes) {
    const auto written =
        pwrite(file, bytes_from + done, bytes - done, static_cast<off_t>(address + done));
    if (written <= 0) {
      return false;
    }
    done += static_cast<size_t>(written);
  }
  return file >= 0;
}

bool is_in_fault() {
  return in_fault;
}

} // namespace openreg
