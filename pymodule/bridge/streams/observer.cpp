#include "streams/observer.h"

namespace openreg {

std::array<std::atomic<Observer *>, kMostObservers> observers{};
std::atomic<size_t> observer_count{0};
constinit thread_local int ObserverPause::depth_ = 0;

namespace {

bool replace(Observer *from, Observer *to) {
  for (auto &slot : observers) {
    auto *expected = from;
    if (slot.compare_exchange_strong(expected, to)) {
      return true;
    }
  }
  return false;
}

} // namespace

void add_observer(Observer &observer) {
  for (const auto &slot : observers) {
    if (slot.load() == &observer) {
      return;
    }
  }
  TORCH_INTERNAL_ASSERT(replace(nullptr, &observer), "more than ", kMostObservers, " observers");
  ++observer_count;
}

void remove_observer(Observer &observer) {
  if (replace(&observer, nullptr)) {
    --observer_count;
  }
}

} // namespace openreg
