// Memory plans: what a CUDA kernel allocates while it runs.
//
// The planner, which is written in Python (torch_openreg/plans/), says for a call which blocks of
// device memory it takes and frees on CUDA, and which of them become results. A launch asks it once
// for each signature. The answer becomes a part of the output plan (OutputPlan::events).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "launch/output_plan.h"

namespace openreg {

struct MemoryPlan {
  // A block that is taken: its bytes; blocks are numbered from 1. The number of a block that is
  // freed, as a negative number.
  std::vector<int64_t> events;
  std::vector<int64_t> results; // the block of each fresh result
  PlanSource source = PlanSource::kNone;
};

// Returns nothing if there is no plan. Called without the GIL, on any thread.
using Planner = std::function<std::optional<MemoryPlan>(const c10::OperatorHandle &,
                                                        const torch::jit::Stack &arguments)>;

// Without a planner, launches have no memory plans.
void set_planner(Planner planner);
bool has_planner();

// Asks the planner. `arguments` are those of the call, with device tensors.
std::optional<MemoryPlan> plan_memory(const c10::OperatorHandle &op,
                                      const torch::jit::Stack &arguments);

// Adds a memory plan to an output plan, unless they disagree about the results. A result that no
// kernel writes may get a larger block than it needs, as on CUDA (`may_be_larger`).
void add_memory_plan(const MemoryPlan &memory, OutputPlan &plan, bool may_be_larger = false);

// Takes and frees what an operator takes on CUDA besides its results. For operators with a kernel
// of openreg's own that write to their arguments and return nothing else. Does nothing without a
// planner.
void take_planned_memory(const c10::OperatorHandle &op, const torch::jit::Stack &arguments,
                         c10::DeviceIndex device);

// Counts a launch on a device by the source of its plan. Call it only if there is a planner.
void count_launch(c10::DeviceIndex device, PlanSource source);

// Returns the counts of a device, by PlanSource.
std::array<uint64_t, kPlanSources> count_launches(c10::DeviceIndex device);

} // namespace openreg
