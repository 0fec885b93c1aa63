#include "memory/observation/memory_observers.h"

#include <array>
#include <atomic>
#include <mutex>

namespace openreg {

namespace {

using Observe = void (*)(const openreg_memory_event &event);

std::array<std::atomic<Observe>, static_cast<size_t>(MemoryObserver::kCount)> observers{};

void tell_all(const openreg_memory_event *event) {
  for (const auto &observer : observers) {
    if (const auto observe = observer.load(std::memory_order_relaxed); observe != nullptr) {
      observe(*event);
    }
  }
}

} // namespace

void observe_memory(MemoryObserver which, Observe observe) {
  static auto &mutex = *new std::mutex();
  const std::lock_guard lock(mutex);
  observers[static_cast<size_t>(which)].store(observe);
  bool any = false;
  for (const auto &observer : observers) {
    any = any || observer.load() != nullptr;
  }
  openreg_memory_observe(any ? &tell_all : nullptr);
}

} // namespace openreg
