#include "distributed/symmetric/signals.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <utility>

#include "collectives/collectives.h"
#include "streams/inline_guard.h"

namespace openreg {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kShortestPauseNs = 2'000, kLongestPauseNs = 500'000;
constexpr auto kLookEvery = std::chrono::milliseconds(200); // whether the peer lives

std::atomic<bool> process_ends{false};

void pause_for(int64_t ns) {
  const timespec pause{.tv_sec = 0, .tv_nsec = ns};
  nanosleep(&pause, nullptr);
}

} // namespace

Flip::Flip(void *address, uint32_t from, uint32_t to, std::string what, PeerProcess peer)
    : word_(static_cast<uint32_t *>(openreg_kernel_view(address))), from_(from), to_(to),
      what_(std::move(what)), peer_(peer) {}

openreg_status Flip::wait(const Clock::time_point *deadline) const {
  const auto began = Clock::now();
  auto next_look = began + kLookEvery;
  bool has_ended = false;
  const std::atomic_ref<uint32_t> word(*word_);
  for (int64_t pause_ns = kShortestPauseNs;; pause_ns = std::min(2 * pause_ns, kLongestPauseNs)) {
    auto expected = from_;
    if (word.compare_exchange_strong(expected, to_)) {
      return OPENREG_OK;
    }
    const auto now = Clock::now();
    if (process_ends) {
      return openreg_fail(OPENREG_COMMUNICATION_FAILURE, "openreg: the process ends");
    }
    if (has_ended) {
      return openreg_fail(OPENREG_COMMUNICATION_FAILURE,
                          "openreg: symmetric memory: %s, and its process %d has ended",
                          what_.c_str(), peer_.pid);
    }
    if (deadline != nullptr && now >= *deadline) {
      return openreg_fail(OPENREG_COMMUNICATION_FAILURE,
                          "openreg: symmetric memory: %s in the %.3g s that were given",
                          what_.c_str(), std::chrono::duration<double>(*deadline - began).count());
    }
    if (peer_.pid != 0 && now >= next_look) {
      next_look = now + kLookEvery;
      has_ended = openreg_process_has_ended(peer_.pid, peer_.started); // then one more try
    }
    pause_for(pause_ns);
  }
}

openreg_status wait_for(const Flips &flips, std::chrono::milliseconds time) {
  const auto deadline = Clock::now() + time;
  for (const auto &flip : flips) {
    const auto status = flip.wait(time.count() == 0 ? nullptr : &deadline);
    if (status != OPENREG_OK) {
      return status;
    }
  }
  return OPENREG_OK;
}

void queue_flips(c10::DeviceIndex device, Flips flips, size_t timeout_ms) {
  const WithoutGil no_gil;
  const auto time = std::chrono::milliseconds(timeout_ms);
  queue_on_stream(device, [flips = std::move(flips), time] { return wait_for(flips, time); });
}

void abort_signals() {
  process_ends = true;
}

} // namespace openreg
