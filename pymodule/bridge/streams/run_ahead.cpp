#include "streams/run_ahead.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>

#include "core/status.h"

namespace openreg {

namespace {

// The initial estimate: waking a sleeping thread takes 5 to 50 us.
constexpr int64_t kInitialHandoffNs = 20'000;
// Limits of a measurement: on an overloaded machine it says nothing about the handoff.
constexpr int64_t kMinHandoffNs = 5'000;
constexpr int64_t kMaxHandoffNs = 100'000;

// A window ends after this many launches if the program does not wait.
constexpr int64_t kLaunchesPerWindow = 64;

std::atomic<int64_t> smoothed_handoff_ns{kInitialHandoffNs};

// An exponential moving average with weight 1/8.
int64_t smoothed(int64_t before, int64_t now) {
  return before + (now - before) / 8;
}

// One per device: when the host first waited for it after a launch.
struct Waits {
  std::atomic<bool> has_launches{false};
  std::atomic<uint64_t> count{0};
  std::atomic<int64_t> began_ns{0};
};

std::array<Waits, OPENREG_MAX_DEVICES> waits;

} // namespace

// One per stream. Threads that launch on the same stream at the same time distort each other's
// figures, which is harmless: all fields are atomic and only steer a decision.
struct Window {
  std::atomic<uint64_t> waits_before{0};
  std::atomic<int64_t> returned_ns{0}; // when the last launch returned; 0: none yet
  std::atomic<int64_t> host_ns{0};
  std::atomic<int64_t> work_ns{0};
  std::atomic<int64_t> launches{0};
  std::atomic<int64_t> gain_ns{
      kInitialHandoffNs}; // smoothed; positive: assume that a new program runs ahead

  void add_host_time(int64_t until_ns) {
    if (const auto from_ns = get(returned_ns); from_ns != 0 && until_ns > from_ns) {
      set(host_ns, get(host_ns) + until_ns - from_ns);
    }
  }

  void end() {
    if (const auto count = get(launches); count > 0) {
      const auto gain = std::min(get(host_ns), get(work_ns)) - handoff_ns() - count * kQueueingNs;
      // Clamped, so that one long window does not outweigh many others.
      set(gain_ns, smoothed(get(gain_ns), std::clamp(gain, -kMaxHandoffNs, kMaxHandoffNs)));
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

RunAheadSample::RunAheadSample(c10::DeviceIndex device, int stream, int64_t work_ns)
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

RunAheadSample::~RunAheadSample() {
  Window::set(window_->returned_ns, now_ns());
  Window::set(waits[device_].has_launches, true);
}

bool RunAheadSample::prefers_queueing() const {
  return Window::get(window_->gain_ns) > 0;
}

void record_wait(c10::DeviceIndex device) {
  auto &waited = waits[device];
  if (!waited.has_launches.load(std::memory_order_relaxed)) {
    return;
  }
  waited.has_launches.store(false, std::memory_order_relaxed);
  waited.began_ns.store(now_ns(), std::memory_order_relaxed);
  waited.count.fetch_add(1, std::memory_order_relaxed);
}

int64_t handoff_ns() {
  return smoothed_handoff_ns.load(std::memory_order_relaxed);
}

void record_handoff(int64_t from_queueing_to_beginning_ns) {
  const auto round_trip =
      std::clamp(2 * from_queueing_to_beginning_ns, kMinHandoffNs, kMaxHandoffNs);
  smoothed_handoff_ns.store(smoothed(handoff_ns(), round_trip), std::memory_order_relaxed);
}

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

} // namespace openreg
