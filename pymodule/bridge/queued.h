// Launches that are not waited for: given to the current stream's worker with results that are
// tensors already, made by forecast (memo.h).
//
// The worker runs the CPU kernel on the twins, which it was given at the launch: like a GPU's
// kernel it knows addresses and shapes, and keeps no memory alive. Results are born where the
// forecast put them; what else the kernel allocates is host memory of its own. A kernel whose
// results are not as foretold, or that raises, is a failure of the device, which the next
// synchronization raises.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <chrono>

#include "device_tensor.h"
#include "memo.h"
#include "turn.h"

namespace openreg {

// How long a kernel must run, by its forecast, to be queued on an idle stream; a shorter one runs
// at once, on the calling thread. 0: everything that can be queued is, for tests.
std::chrono::nanoseconds queueing_threshold();
void set_queueing_threshold(std::chrono::nanoseconds threshold);

// Launches of fewer elements than this are taken for short without a look at their forecast.
int64_t short_launch_elements();

// Whether a launch by this thread may be queued now: not within a turn, and not with
// OPENREG_LAUNCH_BLOCKING=1.
bool may_queue();

// A device tensor of a launch, and the twin that stands in for it.
struct Exchanged {
  at::Tensor tensor;
  at::Tensor twin;
  bool written;
};

// What a kernel gave back on top of the stack, as a forecast of the next launch like it.
std::shared_ptr<Forecast> make_forecast(const torch::jit::Stack &stack, size_t returns,
                                        c10::ArrayRef<Exchanged> exchanged,
                                        const Allocations &allocations,
                                        std::chrono::nanoseconds cost);

// Keeps the calling worker on the cores of a device; -1: on all that the program may use.
void keep_on_cores(int device);

// Whether the device's current stream has nothing to do.
bool is_idle(c10::DeviceIndex device);

// Whether a launch with such a forecast is better queued than done now.
bool is_worth_queueing(const Forecast &forecast, c10::DeviceIndex device);

// Queues the launch on the device's current stream and puts its results in the place of its
// arguments, of which `arguments` lie on top of the stack with twins for device tensors.
void queue_launch(const c10::OperatorHandle &op, torch::jit::Stack *stack, size_t arguments,
                  const std::shared_ptr<Forecast> &forecast, c10::ArrayRef<Exchanged> exchanged,
                  c10::DeviceIndex device);

} // namespace openreg
