#include "sanitizer/forward_sites.h"

#include <array>
#include <atomic>

namespace openreg {

namespace {

// The call site of one forward, by its sequence number. Later forwards replace earlier ones.
struct ForwardSite {
  std::atomic<uint64_t> key{0}, call_site{0};
};
constexpr size_t kForwardSites = 1 << 16;
std::array<ForwardSite, kForwardSites> forward_sites;

uint64_t forward_key(uint64_t thread, int64_t sequence) {
  return static_cast<uint64_t>(sequence) << 16 ^ thread;
}

} // namespace

void record_forward(const at::RecordFunction &function, uint64_t call_site) {
  if (function.seqNr() < 0) {
    return;
  }
  const auto key = forward_key(at::RecordFunction::currentThreadId(), function.seqNr());
  auto &slot = forward_sites[static_cast<size_t>(function.seqNr()) % kForwardSites];
  slot.key.store(key, std::memory_order_relaxed);
  slot.call_site.store(call_site, std::memory_order_relaxed);
}

uint64_t forward_call_site_of(const at::RecordFunction &function) {
  if (function.seqNr() < 0) {
    return 0;
  }
  const auto key = forward_key(function.forwardThreadId(), function.seqNr());
  const auto &slot = forward_sites[static_cast<size_t>(function.seqNr()) % kForwardSites];
  return slot.key.load(std::memory_order_relaxed) == key
             ? slot.call_site.load(std::memory_order_relaxed)
             : 0;
}

} // namespace openreg
