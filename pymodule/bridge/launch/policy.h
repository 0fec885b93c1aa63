// What happens to a launch: it runs *inline*, on the calling thread; it is *queued* for its
// stream's worker; or the stream is *waited for*. This is the whole policy:
//
//  0. A launch on a stream that captures becomes a node of a graph (device/capture.h), whatever
//  else
//     is said here; if it cannot be queued, it is refused.
//  1. Within inline work, and with OPENREG_LAUNCH_BLOCKING=1, nothing is queued.
//  2. A launch on a stream that is not idle is queued, however short it is.
//  3. On an idle stream a short launch runs inline: one of few elements, or whose kernel takes less
//     time than queueing it. How long kernels take is remembered by operator and number of
//     elements; one of which that is not known is queued if it can be.
//  4. On an idle stream a launch that takes many times as long as a hand-over is queued, for it
//     hides the hand-over.
//  5. In between it depends on the program: if it runs ahead of the stream the launch is queued, if
//     it waits for it, or has nothing else to do, the launch runs inline (streams/run_ahead.h).
//  6. What is to be queued and cannot be, is waited for: the launch runs inline as soon as the
//     stream is idle. Results must be tensors before the kernel has run, so the first launch of its
//     kind, whose results nobody can forecast, is one such (launch/output_plan.h); the others are
//     those of which can_be_queued says so, and those with composite tensors.
//
// Either way a kernel computes with as many threads, by its elements and by how many devices the
// program uses, so that its numbers do not depend on the way.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Device.h>

#include <array>
#include <atomic>
#include <bit>
#include <optional>
#include <string>
#include <utility>

#include "streams/run_ahead.h"
#include "streams/inline_guard.h"

namespace openreg {

// Launches of fewer elements than this are short without a look at what they cost: so many elements
// are added in less than it takes to queue the launch.
inline constexpr int64_t kShortElements = 16384;

// For tests: everything that can be queued is, however short.
bool queues_everything();
void set_queues_everything(bool everything);

// Whether a launch of so many elements is worth a thought.
inline bool is_long(int64_t elements);

// Whether a launch by this thread may be queued now: point 1.
bool may_queue();

// Whether launches of an operator can be queued, as far as its schema tells.
bool can_be_queued(const c10::OperatorHandle &op);

// Whether the device's current stream has nothing to do.
bool is_idle(c10::DeviceIndex device);

// Whether it captures (device/capture.h), and raises that it cannot capture something.
bool is_capturing(c10::DeviceIndex device);
[[noreturn]] void refuse_in_capture(c10::DeviceIndex device, const std::string &what);

// How long the kernels of an operator take, by the power of two of their elements.
class LaunchCost {
public:
  // In ns; 0 when it is not known.
  int64_t of(int64_t elements) const {
    return costs_ns_[place_of(elements)].load(std::memory_order_relaxed);
  }
  void note(int64_t elements, int64_t ns);

private:
  static size_t place_of(int64_t elements) {
    return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(elements)));
  }
  std::array<std::atomic<uint32_t>, 64> costs_ns_{};
};

// ---- threads ------------------------------------------------------------------------------------

// With how many threads a kernel of so many elements computes, of the `threads` that the calling
// program computes with: with all of them where it is short, else with its device's share. The
// devices that had long launches share the cores; the shares do not follow who is busy at the
// moment, for sums in another order are other numbers.
int share_of_threads(int64_t elements, int threads);

// The same for a launch that is about to run on this thread, of the threads that it computes with;
// a part of another launch has those of the whole.
int threads_inline(int64_t elements);

// While one lives, the calling thread computes with so many threads.
class ThreadCount {
public:
  explicit ThreadCount(int threads);
  ~ThreadCount();
  ThreadCount(const ThreadCount &) = delete;
  ThreadCount &operator=(const ThreadCount &) = delete;

private:
  int before_;
};

// Keeps the calling worker on the cores of its device if several devices share them; on all that
// the program may use otherwise.
void keep_on_share_of_cores(c10::DeviceIndex device);
void keep_on_all_cores();

// ---- launches -----------------------------------------------------------------------------------

// A long launch, from the decision what happens to it until it returns.
class LongLaunch {
public:
  LongLaunch(LaunchCost &cost, int64_t elements, c10::DeviceIndex device);
  ~LongLaunch();
  LongLaunch(const LongLaunch &) = delete;
  LongLaunch &operator=(const LongLaunch &) = delete;

  // The decision for an idle stream: points 3 to 5.
  bool is_queued() const { return queued_; }

  // The launch turned out to be queued: its time on this thread is not its kernel's.
  void set_queued() { queued_ = true; }

private:
  LaunchCost &cost_;
  int64_t elements_;
  bool queued_ = true;
  std::optional<PacedLaunch> paced_;
};

inline bool is_long(int64_t elements) {
  return elements >= kShortElements || queues_everything();
}

// Work whose results there are already: it knows addresses, is copied, and does not touch tensors.
// By the policy above, with `elements` of whatever `cost` counts, which lasts. Work may return a
// status.
template <class Work>
void submit(LaunchCost &cost, int64_t elements, c10::DeviceIndex device, Work work) {
  if (!is_long(elements)) {
    run_on_stream(device, std::move(work));
    return;
  }
  LongLaunch launch(cost, elements, device);
  if (!launch.is_queued()) {
    if (const Turn turn(device, Turn::kIfIdle); turn.is_held()) {
      check(do_work(work));
      return;
    }
    launch.set_queued();
  }
  queue_on_stream(device, [&cost, elements, work = std::move(work)]() mutable {
    const auto began_ns = now_ns();
    const auto status = do_work(work);
    cost.note(elements, now_ns() - began_ns);
    return status;
  });
}

} // namespace openreg
