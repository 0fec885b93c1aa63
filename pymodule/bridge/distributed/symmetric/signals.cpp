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
constexpr auto kPeerCheckInterval = std::chrono::milliseconds(200); // checks whether the peer lives

std::atomic<bool> is_exiting{false};

void pause_for(int64_t ns) {
  const timespec pause{.tv_sec = 0, .tv_nsec = ns};
  nanosleep(&pause, nullptr);
}

} // namespace

SignalCas::SignalCas(void *address, uint32_t from, uint32_t to, std::string failure,
                     PeerProcess peer)
    : word_(static_cast<uint32_t *>(openreg_kernel_view(address))), from_(from), to_(to),
      failure_(std::move(failure)), peer_(peer) {}

openreg_status SignalCas::wait(const Clock::time_point *deadline) const {
  const auto began = Clock::now();
  auto next_check = began + kPeerCheckInterval;
  bool has_ended = false;
  const std::atomic_ref<uint32_t> word(*word_);
  for (int64_t pause_ns = kShortestPauseNs;; pause_ns = std::min(2 * pause_ns, kLongestPauseNs)) {
    auto expected = from_;
    if (word.compare_exchange_strong(expected, to_)) {
      return OPENREG_OK;
    }
    const auto now = Clock::now();
    if (is_exiting) {
      return openreg_fail(OPENREG_COMMUNICATION_FAILURE, "openreg: the process is exiting");
    }
    if (has_ended) {
      return openreg_fail(OPENREG_COMMUNICATION_FAILURE,
                          "openreg: symmetric memory: %s, and its process %d has ended",
                          failure_.c_str(), peer_.pid);
    }
    if (deadline != nullptr && now >= *deadline) {
      return openreg_fail(OPENREG_COMMUNICATION_FAILURE,
                          "openreg: symmetric memory: %s within %.3g s", failure_.c_str(),
                          std::chrono::duration<double>(*deadline - began).count());
    }
    if (peer_.pid != 0 && now >= next_check) {
      next_check = now + kPeerCheckInterval;
      has_ended = openreg_process_has_ended(peer_.pid, peer_.started); // then it tries once more
    }
    pause_for(pause_ns);
  }
}

openreg_status wait_for(const SignalSequence &signals, std::chrono::milliseconds time) {
  const auto deadline = Clock::now() + time;
  for (const auto &signal : signals) {
    const auto status = signal.wait(time.count() == 0 ? nullptr : &deadline);
    if (status != OPENREG_OK) {
      return status;
    }
  }
  return OPENREG_OK;
}

void queue_signals(c10::DeviceIndex device, SignalSequence signals, size_t timeout_ms) {
  const WithoutGil no_gil;
  const auto time = std::chrono::milliseconds(timeout_ms);
  queue_on_stream(device, [signals = std::move(signals), time] { return wait_for(signals, time); });
}

void abort_signals() {
  is_exiting = true;
}

} // namespace openreg
