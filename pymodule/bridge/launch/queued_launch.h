// Queued launches: the current stream's worker runs the kernel, and the result tensors are made at
// the call from an output plan (output_plan.h).
//
// The worker runs the CPU kernel on the twins that it got at the launch. Like a GPU kernel, it
// holds addresses and shapes and keeps no memory alive. The launch takes and frees device memory
// as the plan says. The results are in it; what is freed is never accessed. What the kernel
// allocates for itself is host memory. If a kernel raises or its results differ from
// the plan, the device has failed: the next synchronization raises the error.
//
// On a capturing stream the launch becomes a node of the graph. Each replay does what the worker
// does once.
#pragma once

#include <ATen/core/stack.h>

#include <memory>

#include "launch/cpu_kernel.h"
#include "launch/output_plan.h"
#include "launch/policy.h"
#include "tensor/device_tensor.h"

namespace openreg {

// Queues or captures a launch on the device's current stream. Replaces its `arguments` on top of
// the stack, in which twins stand in for device tensors, by its results. `plan` must allow
// queueing. The worker records the kernel's time for `elements` in `cost`, which must outlive the
// launch.
void queue_launch(const CpuKernel &kernel, torch::jit::Stack *stack, size_t arguments,
                  const std::shared_ptr<OutputPlan> &plan, c10::ArrayRef<Substituted> substituted,
                  LaunchCost &cost, int64_t elements, c10::DeviceIndex device);

// Runs a launch on the calling thread, which must hold the stream (InlineGuard), in the memory that
// the plan names. The arguments are the same. Returns false if the kernel did something else than
// planned; then its own results are on the stack.
bool run_planned(const CpuKernel &kernel, torch::jit::Stack *stack, size_t arguments,
                 const std::shared_ptr<OutputPlan> &plan, c10::ArrayRef<Substituted> substituted,
                 LaunchCost &cost, int64_t elements, c10::DeviceIndex device);

} // namespace openreg
