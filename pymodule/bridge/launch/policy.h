// The launch policy: whether a launch runs *inline* on the calling thread, is *queued* for its
// stream's worker, or *waits* for the stream and then runs inline. This is the whole policy:
//
//  0. A launch on a capturing stream becomes a node of a graph (device/capture.h), regardless of
//     the other rules. If it cannot be queued, it is refused.
//  1. Within inline work, and with OPENREG_LAUNCH_BLOCKING=1, nothing is queued.
//  2. A launch on a busy stream is queued, however short it is.
//  3. On an idle stream a short launch runs inline: one with few elements, or whose kernel takes
//     less time than queueing it. Kernel times are remembered per operator and number of elements.
//     A launch whose time is unknown is queued.
//  4. On an idle stream a launch that takes many times as long as a handoff to the worker is
//     queued: the handoff costs little in comparison.
//  5. In between, it depends on the program (streams/run_ahead.h). If the program runs ahead of the
//     stream, the launch is queued. If it waits for the stream or has nothing else to do, the
//     launch runs inline.
//  6. A launch that should be queued but cannot be waits until the stream is idle and runs inline.
//     These are: the first launch of its kind, because a queued launch needs an output plan
//     (launch/output_plan.h); operators for which can_be_queued() is false; and launches with
//     composite tensors.
//
// The number of threads depends on the elements and on how many devices the program uses. It is the
// same for inline and queued launches, so that results do not depend on the way.
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

// A launch with fewer elements is short, whatever its cost: adding this many elements takes less
// time than queueing a launch.
inline constexpr int64_t kShortElements = 16384;

// For tests: queues every launch that can be queued, however short.
bool queues_everything();
void set_queues_everything(bool everything);

// Whether rules 3 to 5 need more than the number of elements.
inline bool is_long(int64_t elements);

// Whether this thread may queue launches now: rule 1.
bool may_queue();

// Whether the values of an operator's arguments decide the shapes of its results, or are returned.
bool depends_on_values(const c10::OperatorHandle &op);

// Whether launches of an operator can be queued, judged by its schema.
bool can_be_queued(const c10::OperatorHandle &op);

// Whether the device's current stream is idle.
bool is_idle(c10::DeviceIndex device);

// Whether the device's current stream captures (device/capture.h).
bool is_capturing(c10::DeviceIndex device);

// Invalidates the capture of the device's current stream and raises torch.AcceleratorError. `what`
// says what cannot be captured.
[[noreturn]] void raise_in_capture(c10::DeviceIndex device, const std::string &what);

// How long an operator's kernel takes, per power of two of its elements. Thread-safe.
class LaunchCost {
public:
  // In nanoseconds; 0 if unknown.
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

// Returns how many threads a kernel with so many elements uses, of the program's `threads`: all of
// them if it is short, else its device's share. The devices that have had long launches share the
// cores. Shares do not depend on which devices are busy: another number of threads sums in another
// order and gives other numbers.
int share_of_threads(int64_t elements, int threads);

// The same for a launch that is about to run on this thread. Work within another launch uses the
// threads of that launch.
int threads_inline(int64_t elements);

// While one lives, kernels on the calling thread use `threads` threads, of OpenMP and of the BLAS
// library.
class ThreadCount {
public:
  explicit ThreadCount(int threads);
  [[gnu::noinline]] ~ThreadCount(); // inlined, GCC warns of an empty std::optional<ThreadCount>
  ThreadCount(const ThreadCount &) = delete;
  ThreadCount &operator=(const ThreadCount &) = delete;

private:
  int before_;
  std::optional<int> blas_before_; // nothing: the counts are unchanged
};

// Binds the calling worker to the cores of its device if several devices share them, else to all
// cores that the program may use.
void keep_on_share_of_cores(c10::DeviceIndex device);
void keep_on_all_cores();

// ---- launches -----------------------------------------------------------------------------------

// A long launch, from the policy's decision until it returns.
class LongLaunch {
public:
  LongLaunch(LaunchCost &cost, int64_t elements, c10::DeviceIndex device);
  ~LongLaunch();
  LongLaunch(const LongLaunch &) = delete;
  LongLaunch &operator=(const LongLaunch &) = delete;

  // The decision for an idle stream: rules 3 to 5.
  bool is_queued() const { return queued_; }

  // The launch was queued after all, so its time on this thread is not its kernel's time.
  void set_queued() { queued_ = true; }

private:
  LaunchCost &cost_;
  int64_t elements_;
  bool queued_ = true;
  std::optional<RunAheadSample> sample_;
};

inline bool is_long(int64_t elements) {
  return elements >= kShortElements || queues_everything();
}

// Runs or queues work by the policy above. `work` writes to memory that exists: it is copied, holds
// addresses instead of tensors, and returns nothing or a status. `cost` must outlive the work;
// `elements` is in its unit.
template <class Work>
void submit(LaunchCost &cost, int64_t elements, c10::DeviceIndex device, Work work) {
  if (!is_long(elements)) {
    run_on_stream(device, std::move(work));
    return;
  }
  LongLaunch launch(cost, elements, device);
  if (!launch.is_queued()) {
    if (const InlineGuard guard(device, InlineGuard::kIfIdle); guard.is_held()) {
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
