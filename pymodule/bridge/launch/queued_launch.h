// Launches that are not waited for: given to the current stream's worker with results that are
// tensors already, made by forecast (forecast.h).
//
// The worker runs the CPU kernel on the twins, which it was given at the launch: like a GPU's
// kernel it knows addresses and shapes, and keeps no memory alive. All memory that the kernel is
// expected to allocate is allocated at the launch, its temporary memory too, which is freed as soon
// as the launch has its place on the stream. What it allocates beside that is host memory. A kernel
// whose results are not as expected, or that raises, is a failure of the device, which the next
// synchronization raises.
//
// On a stream that captures the launch becomes a node of the graph, and does at each replay what a
// worker does once.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>

#include "launch/output_plan.h"
#include "launch/policy.h"
#include "tensor/device_tensor.h"

namespace openreg {

// Queues the launch on the device's current stream and puts its results in the place of its
// arguments, of which `arguments` lie on top of the stack with twins for device tensors. The worker
// notes in `cost`, which must last, how long the kernel took for so many elements.
void queue_launch(const c10::OperatorHandle &op, torch::jit::Stack *stack, size_t arguments,
                  const std::shared_ptr<Forecast> &forecast, c10::ArrayRef<Exchanged> exchanged,
                  LaunchCost &cost, int64_t elements, c10::DeviceIndex device);

} // namespace openreg
