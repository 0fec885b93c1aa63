#include "memory/allocation/host_blocks.h"

#include <c10/util/Exception.h>

#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_set>

namespace openreg {

namespace {

// Requests of at least so many bytes get large blocks. 0: there are no blocks.
std::atomic<size_t> large_from{0};

// It lies in front of the block.
struct alignas(64) Header {
  size_t mapped_bytes; // 0: from malloc
  uint32_t flags;
};

constexpr size_t kAlignment = 64; // of small blocks
constexpr size_t kPageBytes = 4096;

Header *header_of(void *address) {
  return static_cast<Header *>(address) - 1;
}

// The addresses of all blocks. Raw memory does not say which allocator it came from.
class Addresses {
public:
  void insert(void *address) {
    const std::lock_guard lock(mutex_);
    addresses_.insert(address);
  }
  bool erase(void *address) {
    const std::lock_guard lock(mutex_);
    return addresses_.erase(address) == 1;
  }
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

private:
  std::mutex mutex_;
  std::unordered_set<void *> addresses_;
};

// Never destroyed: tensors may be freed at exit.
Addresses &the_addresses() {
  static auto *addresses = new Addresses();
  return *addresses;
}

// Returns false if it is other memory.
bool try_free(void *address) {
  if (!the_addresses().erase(address)) {
    return false;
  }
  const auto mapped_bytes = header_of(address)->mapped_bytes;
  if (mapped_bytes == 0) {
    std::free(header_of(address));
  } else {
    munmap(static_cast<char *>(address) - kPageBytes, mapped_bytes);
  }
  return true;
}

void free_host_block(void *address) {
  try_free(address);
}

} // namespace

// A child that is forked while another thread allocates gets a lock that is free.
void start_host_blocks(size_t large_bytes) {
  pthread_atfork([] { the_addresses().lock(); }, [] { the_addresses().unlock(); },
                 [] { the_addresses().unlock(); });
  large_from.store(large_bytes, std::memory_order_relaxed);
}

bool host_blocks_exist() {
  return large_from.load(std::memory_order_relaxed) != 0;
}

c10::DataPtr allocate_host_block(size_t bytes) {
  const bool is_large = bytes >= large_from.load(std::memory_order_relaxed);
  const size_t before = is_large ? kPageBytes : sizeof(Header);
  const size_t in_all = bytes + before;
  void *memory = nullptr;
  if (is_large) {
    memory = mmap(nullptr, in_all, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    memory = memory == MAP_FAILED ? nullptr : memory;
  } else if (posix_memalign(&memory, kAlignment, in_all) != 0) {
    memory = nullptr;
  }
  TORCH_CHECK(memory != nullptr, "openreg: a dry run cannot allocate ", bytes,
              " bytes of host memory");
  void *const address = static_cast<char *>(memory) + before;
  if (!is_large) {
    std::memset(address, 0, bytes);
  }
  *header_of(address) = {.mapped_bytes = is_large ? in_all : 0, .flags = 0};
  the_addresses().insert(address);
  return {address, address, &free_host_block, c10::Device(c10::DeviceType::CPU)};
}

bool free_raw_host_block(void *address) {
  return host_blocks_exist() && try_free(address);
}

uint32_t *host_block_flags(const c10::DataPtr &pointer) {
  return pointer.get_deleter() == &free_host_block ? &header_of(pointer.get_context())->flags
                                                   : nullptr;
}

} // namespace openreg
