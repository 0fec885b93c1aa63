// Whether a program runs ahead of a stream, or waits for what it has just launched.
//
// A launch that is queued costs the hand-over to the stream's worker and back. It is worth that
// when the program has something else to do meanwhile: more Python, work of another stream, another
// thread. So what the program does is measured, alike whether its launches run inline or are
// queued.
//
// Between two waits of the host for a device lies a *window* of each of its streams. In it
//
//     host   is the program's own time: between the return of one launch and the beginning of the
//            next, or of the wait
//     work   is how long the launches' kernels take
//     gain = min(host, work) - hand-over - launches * (what queueing one costs more than running
//     it)
//
// The program runs ahead of a stream while the smoothed gain of its windows is positive. Only
// launches that are long enough to be thought about are counted; short ones are the program's time.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace openreg {

// A launch on a stream, from its beginning to its return.
class PacedLaunch {
public:
  // `work_ns`: how long its kernel takes, 0 when that is not known.
  PacedLaunch(c10::DeviceIndex device, int stream, int64_t work_ns);
  ~PacedLaunch();
  PacedLaunch(const PacedLaunch &) = delete;
  PacedLaunch &operator=(const PacedLaunch &) = delete;

  bool runs_ahead() const;
  int64_t began_ns() const { return began_ns_; }

private:
  struct Window *window_;
  c10::DeviceIndex device_;
  int64_t began_ns_;
};

// The host waits for work of the device: to be called when it begins to.
void note_wait(c10::DeviceIndex device);

// What a queued launch costs the calling thread more than one that runs there: results are made by
// forecast, arguments are boxed and captured. Source: bench/operators.py.
inline constexpr int64_t kQueueingNs = 4'000;

// How long it takes here from queueing work on an idle stream until its worker begins, and from its
// end until the host has noticed: measured, for machines and their load differ.
int64_t hand_over_ns();
void note_hand_over(int64_t from_queueing_to_beginning_ns);

int64_t now_ns();

} // namespace openreg
