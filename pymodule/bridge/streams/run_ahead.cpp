#include "streams/run_ahead.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>

#include "core/status.h"

namespace openreg {

namespace {

// Before anything was measured: a thread that sleeps is woken within 5 to 50 us.
constexpr int64_t kFirstHandOverNs = 20'000;
// What is measured while others want all cores says nothing of a hand-over.
constexpr int64_t kShortestHandOverNs = 5'000;
constexpr int64_t kLongestHandOverNs = 100'000;

// A program that never waits is judged after so many launches.
constexpr int64_t kLaunchesPerWindow = 64;

std::atomic<int64_t> smoothed_hand_over_ns{kFirstHandOverNs};

// One part in eight of what is new.
int64_t smoothed(int64_t before, int64_t now) {
  return before + (now - before) / 8;
}

// Of one device: when the host first waited for it after a launch.
struct Waits {
  std::atomic<bool> has_launches{false};
  std::atomic<uint64_t> count{0};
  std::atomic<int64_t> began_ns{0};
};

std::array<Waits, OPENREG_MAX_DEVICES> waits;

} // namespace

// Of one stream. Threads that launch on one stream at the same time spoil each other's figures, and
// nothing else.
struct Window {
  std::atomic<uint64_t> waits_before{0};
  std::atomic<int64_t> returned_ns{0}; // when the last launch did; 0: none yet
  std::atomic<int64_t> host_ns{0};
  std::atomic<int64_t> work_ns{0};
  std::atomic<int64_t> launches{0};
  std::atomic<int64_t> gain_ns{kFirstHandOverNs}; // smoothed; a new program is trusted to run ahead

  void add_host_time(int64_t until_ns) {
    if (const auto from_ns = get(returned_ns); from_ns != 0 && until_ns > from_ns) {
      set(host_ns, get(host_ns) + until_ns - from_ns);
    }
  }

  void end() {
    if (const auto count = get(launches); count > 0) {
      const auto gain = std::min(get(host_ns), get(work_ns)) - hand_over_ns() - count * kQueueingNs;
      // A window of a long wait is one experience as any other.
      set(gain_ns,
          smoothed(get(gain_ns), std::clamp(gain, -kLongestHandOverNs, kLongestHandOverNs)));
    }
    set(host_ns, 0);
    set(work_ns, 0);
    set(launches, 0);
  }

  template <class T> static T get(const std::atomic<T> &value) {
    return value.load(std::memory_order_relaxed);
  }
  template <class T, class U> static void set(std::atomic<T> &value, U to) {
    value.store(to, std::memory_order_relaxed);
  }
};

namespace {
std::array<std::array<Window, OPENREG_STREAMS_PER_DEVICE>, OPENREG_MAX_DEVICES> windows;
} // namespace

PacedLaunch::PacedLaunch(c10::DeviceIndex device, int stream, int64_t work_ns)
    : window_(&windows[device][stream]), device_(device), began_ns_(now_ns()) {
  auto &window = *window_;
  auto &waited = waits[device];
  if (const auto count = Window::get(waited.count); count != Window::get(window.waits_before)) {
    window.add_host_time(Window::get(waited.began_ns));
    window.end();
    Window::set(window.waits_before, count);
  } else {
    window.add_host_time(began_ns_);
    if (Window::get(window.launches) >= kLaunchesPerWindow) {
      window.end();
    }
  }
  Window::set(window.work_ns, Window::get(window.work_ns) + work_ns);
  Window::set(window.launches, Window::get(window.launches) + 1);
}

PacedLaunch::~PacedLaunch() {
  Window::set(window_->returned_ns, now_ns());
  Window::set(waits[device_].has_launches, true);
}

bool PacedLaunch::runs_ahead() const {
  return Window::get(window_->gain_ns) > 0;
}

void note_wait(c10::DeviceIndex device) {
  auto &waited = waits[device];
  if (!waited.has_launches.load(std::memory_order_relaxed)) {
    return;
  }
  waited.has_launches.store(false, std::memory_order_relaxed);
  waited.began_ns.store(now_ns(), std::memory_order_relaxed);
  waited.count.fetch_add(1, std::memory_order_relaxed);
}

int64_t hand_over_ns() {
  return smoothed_hand_over_ns.load(std::memory_order_relaxed);
}

void note_hand_over(int64_t from_queueing_to_beginning_ns) {
  const auto there_and_back =
      std::clamp(2 * from_queueing_to_beginning_ns, kShortestHandOverNs, kLongestHandOverNs);
  smoothed_hand_over_ns.store(smoothed(hand_over_ns(), there_and_back), std::memory_order_relaxed);
}

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

} // namespace openreg
