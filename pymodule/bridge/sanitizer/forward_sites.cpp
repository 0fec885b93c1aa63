#include "sanitizer/forward_sites.h"

#include <array>
#include <atomic>

namespace openreg {

namespace {

// Where the operator was called whose backward has a number: of the latest ones.
struct Forward {
  std::atomic<uint64_t> number{0}, place{0};
};
constexpr size_t kForwards = 1 << 16;
std::array<Forward, kForwards> forwards;

uint64_t forward_number(uint64_t thread, int64_t sequence) {
  return static_cast<uint64_t>(sequence) << 16 ^ thread;
}

} // namespace

void note_forward(const at::RecordFunction &function, uint64_t place) {
  if (function.seqNr() < 0) {
    return;
  }
  const auto number = forward_number(at::RecordFunction::currentThreadId(), function.seqNr());
  auto &slot = forwards[static_cast<size_t>(function.seqNr()) % kForwards];
  slot.number.store(number, std::memory_order_relaxed);
  slot.place.store(place, std::memory_order_relaxed);
}

uint64_t forward_of(const at::RecordFunction &function) {
  if (function.seqNr() < 0) {
    return 0;
  }
  const auto number = forward_number(function.forwardThreadId(), function.seqNr());
  const auto &slot = forwards[static_cast<size_t>(function.seqNr()) % kForwards];
  return slot.number.load(std::memory_order_relaxed) == number
             ? slot.place.load(std::memory_order_relaxed)
             : 0;
}

} // namespace openreg
