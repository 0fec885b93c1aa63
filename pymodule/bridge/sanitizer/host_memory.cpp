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

// Whole pages.
struct Pages {
  uint64_t begin, end;

  bool touch(const Pages &other) const { return begin < other.end && other.begin < end; }
  bool operator==(const Pages &) const = default;
};

struct Closed {
  Pages pages;
  int protection; // PROT_READ, or PROT_NONE

  bool operator==(const Closed &) const = default;
};

// What work of a stream may do there now.
struct Open {
  Pages pages;
  int protection;

  bool operator==(const Open &) const = default;
};

// Never waits for anything while it is locked: a thread that faults may take it.
std::mutex mutex;
std::map<uint64_t, size_t> &known = *new std::map<uint64_t, size_t>(); // bytes by address
std::atomic<size_t> known_count{0};
std::vector<Closed> &closed = *new std::vector<Closed>();
std::atomic<size_t> closed_count{0};
std::vector<Open> &open_now = *new std::vector<Open>();
std::atomic<ToldOrder *> judge{nullptr}; // null: no page is closed
constinit thread_local bool in_fault = false;
constexpr int kNotOpened = -2;
int memory_file = kNotOpened; // /proc/self/mem; -1: the system does not give it

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

// The block in which an address lies; the end of the map: none.
auto block_around(uint64_t address) {
  auto next = known.upper_bound(address);
  if (next == known.begin()) {
    return known.end();
  }
  --next;
  return address - next->first < next->second ? next : known.end();
}

// ---- protection ---------------------------------------------------------------------------------

int protection_of(const Pages &pages) {
  int protection = PROT_READ | PROT_WRITE;
  for (const auto &each : closed) {
    if (each.pages.touch(pages)) {
      protection &= each.protection;
    }
  }
  for (const auto &open : open_now) {
    if (open.pages.touch(pages)) {
      protection |= open.protection;
    }
  }
  return protection;
}

// Makes pages what is said of them. Without memory for it the system leaves them open.
void apply(const Pages &pages) {
  std::vector<uint64_t> bounds{pages.begin, pages.end};
  const auto add = [&](const Pages &other) {
    for (const auto bound : {other.begin, other.end}) {
      if (pages.begin < bound && bound < pages.end) {
        bounds.push_back(bound);
      }
    }
  };
  for (const auto &each : closed) {
    add(each.pages);
  }
  for (const auto &each : open_now) {
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

template <class Is> void open_those(Is is_meant) {
  std::vector<Pages> opened;
  std::erase_if(closed, [&](const Closed &each) {
    const bool is = is_meant(each);
    if (is) {
      opened.push_back(each.pages);
    }
    return is;
  });
  closed_count.store(closed.size());
  for (const auto &pages : opened) {
    apply(pages);
  }
}

// ---- faults -------------------------------------------------------------------------------------

// What a thread does there by itself, to one byte.
void tell_of_host(ToldOrder &order, uint64_t address, unsigned mode) {
  Accesses accesses;
  accesses.add(address, 1, mode, describe("the program itself"));
  const openreg_sanitizer_launch launch{.actor = order.host(),
                                        .submitter = nullptr,
                                        .site = place_here(),
                                        .accesses = accesses.data(),
                                        .count = accesses.size()};
  (void)openreg_sanitizer_run_launch(order.layer(), &launch); // without memory for it: not told
}

// A handler may have a small stack, and what is told is told through much code.
class LargeStack {
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

constinit thread_local void *LargeStack::entered = nullptr;

// The pages that it opens were closed for one access or more: one finding is enough for all of
// them.
bool resolve(void *address, openreg_fault_access access) {
  const auto at = reinterpret_cast<uint64_t>(address);
  auto *const order = judge.load();
  bool reads_only = true;
  {
    const std::lock_guard lock(mutex);
    if (block_around(at) == known.end() && block_around(round_down(at)) == known.end()) {
      return false;
    }
    const Pages byte{at, at + 1};
    for (const auto &each : closed) {
      reads_only = reads_only && !(each.pages.touch(byte) && each.protection == PROT_NONE);
    }
    const auto before = closed.size();
    open_those([&](const Closed &each) { return each.pages.touch(byte); });
    if (closed.size() == before) { // another thread has opened it since
      return true;
    }
  }
  const bool writes =
      access == OPENREG_FAULT_WRITE || (access == OPENREG_FAULT_UNKNOWN && reads_only);
  if (order != nullptr && !in_fault) {
    auto tell = [&] {
      tell_of_host(*order, at, writes ? OPENREG_SANITIZER_WRITE : OPENREG_SANITIZER_READ);
    };
    in_fault = true;
    LargeStack::run(tell);
    in_fault = false;
  }
  return true;
}

// A child has the parent's memory, and none of the work that goes on there.
void watch_forks() {
  static const bool is_first = [] {
    pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); },
                   [] {
                     judge.store(nullptr);
                     if (memory_file >= 0) { // the parent's memory
                       close(memory_file);
                     }
                     memory_file = kNotOpened;
                     open_now.clear();
                     open_those([](const Closed &) { return true; });
                     known.clear();
                     known_count.store(0);
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

// Nobody else has the rest of a block's last page.
Pages whole_pages(uint64_t begin, uint64_t end, uint64_t end_of_block) {
  return {round_up(begin), end == end_of_block ? round_up(end) : round_down(end)};
}

Open opening(uint64_t begin, size_t bytes, bool writes) {
  return {{round_down(begin), round_up(begin + bytes)},
          writes ? PROT_READ | PROT_WRITE : PROT_READ};
}

} // namespace

// ---- public -------------------------------------------------------------------------------------

void watch_pages(ToldOrder *order, bool close) {
  watch_forks();
  judge.store(close ? order : nullptr);
}

void forget_host_memory() {
  const std::lock_guard lock(mutex);
  judge.store(nullptr);
  open_those([](const Closed &) { return true; });
  known.clear();
  known_count.store(0);
}

void note_pinned(ToldOrder &order, const void *address, size_t bytes) {
  if (bytes == 0 || Unwatched::any()) {
    return;
  }
  openreg_sanitizer_block block{};
  block.address = reinterpret_cast<uint64_t>(address);
  block.bytes = bytes;
  block.site = place_here();
  block.owner = ToldOrder::kHostTag;
  // What the host writes there is not seen, and so nothing is unwritten. Without memory for it,
  // nothing is said of the block.
  if (openreg_sanitizer_alloc(order.layer(), &block, /*is_initialised=*/true) != OPENREG_OK) {
    return;
  }
  const std::lock_guard lock(mutex);
  known[block.address] = bytes;
  known_count.store(known.size());
}

// The allocator gives memory to others only when what streams do there is done.
void forget_pinned(ToldOrder &order, const void *address) {
  const auto begin = reinterpret_cast<uint64_t>(address);
  size_t bytes = 0;
  {
    const std::lock_guard lock(mutex);
    const auto block = known.find(begin);
    if (block == known.end()) {
      return;
    }
    bytes = block->second;
    const Pages pages{begin, round_up(begin + bytes)};
    open_those([&](const Closed &each) { return each.pages.touch(pages); });
    known.erase(block);
    known_count.store(known.size());
  }
  openreg_sanitizer_free(order.layer(), begin, 0);
  openreg_sanitizer_forget(order.layer(), begin, bytes);
}

bool is_known_pinned(const at::Tensor &tensor) {
  if (known_count.load(std::memory_order_relaxed) == 0 || !tensor.defined() || !tensor.is_cpu() ||
      tensor.layout() != c10::kStrided || !tensor.has_storage()) {
    return false;
  }
  const auto address = reinterpret_cast<uint64_t>(tensor.storage().data());
  const std::lock_guard lock(mutex);
  return block_around(address) != known.end();
}

void close_pages(ToldOrder &order, const openreg_sanitizer_access *accesses, size_t count) {
  if (known_count.load(std::memory_order_relaxed) == 0 || judge.load() == nullptr) {
    return;
  }
  openreg_fault_resolve_with(&resolve);
  for (size_t i = 0; i < count; ++i) {
    const auto &region = accesses[i].region;
    const bool writes = (accesses[i].mode & OPENREG_SANITIZER_WRITE) != 0;
    if (!is_dense(region) || !openreg_sanitizer_would_conflict(order.layer(), order.host(), &region,
                                                               writes ? OPENREG_SANITIZER_READ
                                                                      : OPENREG_SANITIZER_WRITE)) {
      continue;
    }
    const std::lock_guard lock(mutex);
    const auto block = block_around(region.address);
    if (block == known.end()) {
      continue;
    }
    const auto pages = whole_pages(region.address, region.address + bytes_of(region),
                                   block->first + block->second);
    const Closed added{pages, writes ? PROT_NONE : PROT_READ};
    if (pages.begin < pages.end && std::find(closed.begin(), closed.end(), added) == closed.end()) {
      closed.push_back(added);
      closed_count.store(closed.size());
      apply(pages);
    }
  }
}

void open_what_is_done(ToldOrder &order) {
  if (closed_count.load(std::memory_order_relaxed) == 0) {
    return;
  }
  const std::lock_guard lock(mutex);
  open_those([&](const Closed &each) {
    const auto block = block_around(each.pages.begin);
    const auto end = block == known.end() ? each.pages.end
                                          : std::min(each.pages.end, block->first + block->second);
    const openreg_sanitizer_region region{.address = each.pages.begin,
                                          .element_bytes = end - each.pages.begin,
                                          .dims = 0,
                                          .sizes = nullptr,
                                          .strides = nullptr};
    return !openreg_sanitizer_would_conflict(
        order.layer(), order.host(), &region,
        each.protection == PROT_NONE ? OPENREG_SANITIZER_READ : OPENREG_SANITIZER_WRITE);
  });
}

void open_for_device(const void *address, size_t bytes, bool writes) {
  const auto begin = reinterpret_cast<uint64_t>(address);
  if (bytes == 0 || known_count.load(std::memory_order_relaxed) == 0) {
    return;
  }
  const std::lock_guard lock(mutex);
  if (block_around(begin) != known.end()) {
    open_now.push_back(opening(begin, bytes, writes));
    apply(open_now.back().pages);
  }
}

void close_for_device(const void *address, size_t bytes, bool writes) {
  const auto given_back = opening(reinterpret_cast<uint64_t>(address), bytes, writes);
  const std::lock_guard lock(mutex);
  const auto open = std::find(open_now.begin(), open_now.end(), given_back);
  if (open != open_now.end()) {
    open_now.erase(open);
    apply(given_back.pages);
  }
}

// As a debugger writes to a program: through the file of its memory, for which protection does not
// count.
bool write_to_closed(void *to, const void *from, size_t bytes) {
  const auto address = reinterpret_cast<uint64_t>(to);
  int file = -1;
  {
    const std::lock_guard lock(mutex);
    if (judge.load() == nullptr || block_around(address) == known.end()) {
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
