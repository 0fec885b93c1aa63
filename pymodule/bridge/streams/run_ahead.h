// Decides whether a program runs ahead of a stream, or waits for what it has just launched.
//
// A queued launch costs the handoff to the stream's worker and back. That pays off if the program
// has something else to do meanwhile: more Python, work on another stream, another thread. So this
// measures what the program does, in the same way for inline and queued launches.
//
// Between two waits of the host for a device lies a *window* of each of its streams. In a window,
//
//     host = the program's own time: from the return of a launch to the start of the next launch,
//            or to the wait
//     work = the time that the kernels of the launches take
//     gain = min(host, work) - handoff - launches * kQueueingNs
//
// The program runs ahead of the stream while the smoothed gain of its windows is positive. Only
// long launches count (launch/policy.h); short ones belong to the program's own time.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace openreg {

// One launch on a stream, from its start to its return.
class RunAheadSample {
public:
  // `work_ns`: how long the kernel takes; 0 if unknown.
  RunAheadSample(c10::DeviceIndex device, int stream, int64_t work_ns);
  ~RunAheadSample();
  RunAheadSample(const RunAheadSample &) = delete;
  RunAheadSample &operator=(const RunAheadSample &) = delete;

  // Whether the program gains if the launch is queued.
  bool prefers_queueing() const;
  int64_t began_ns() const { return began_ns_; }

private:
  struct Window *window_;
  c10::DeviceIndex device_;
  int64_t began_ns_;
};

// Call this when the host begins to wait for work of the device.
void record_wait(c10::DeviceIndex device);

// What a queued launch costs the calling thread beyond an inline one: planning the results, boxing
// and capturing the arguments. Source: bench/operators.py.
inline constexpr int64_t kQueueingNs = 4'000;

// The round trip of a handoff: from queueing on an idle stream until the worker begins, and from
// the end of the work until the host notices. Measured, because machines and their load differ.
int64_t handoff_ns();

// Adds a measurement of the first half. The second half is estimated to take as long.
void record_handoff(int64_t from_queueing_to_beginning_ns);

int64_t now_ns();

} // namespace openreg
