// Output plans: what a launch will return, learned from an earlier launch that ran inline.
//
// A CPU kernel returns results of the same shapes, and allocates memory in the same order, whenever
// the operator, the metadata of its tensors, its other arguments and the relevant global switches
// are the same. So one run predicts the next. With its plan the result tensors can be made before
// the kernel runs. The worker checks the results against the plan (queued_launch.cpp).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "launch/kernel_memory.h"
#include "launch/substitution.h"
#include "memory/allocation/memory.h"

namespace openreg {

// One tensor that a kernel returns.
struct PlannedTensor {
  enum class Kind {
    kFresh,    // in memory that the kernel allocates
    kEmpty,    // of 0 bytes, without memory
    kArgument, // an argument that the kernel wrote to
    kUndefined,
  };
  Kind kind = Kind::kUndefined;
  size_t argument = 0; // kArgument: index among the launch's device tensors
  AllocationIndex allocation;
  size_t bytes = 0; // the size of that allocation
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::SmallVector<int64_t, 5> sizes, strides;
};

// One value that a kernel returns: a tensor, or a list of them.
struct PlannedReturn {
  bool is_list = false;
  std::vector<PlannedTensor> tensors;
};

// What a launch does with device memory, in order. Fresh results and taken blocks are numbered from
// 0.
struct MemoryEvent {
  enum class Kind : uint8_t {
    kResult, // allocates the fresh result `value`
    kTake,   // allocates a block of `value` bytes
    kFree,   // frees the taken block `value`
  };
  Kind kind;
  size_t value;
};

// An argument without elements that the kernel resizes, such as `out` of an operator that PyTorch
// composes from an empty tensor.
struct PlannedResize {
  size_t argument; // among the launch's device tensors
  c10::SmallVector<int64_t, 5> sizes, strides;
};

// The source of a memory plan.
enum class PlanSource : uint8_t {
  kNone,
  kPlanner,
  kBuiltin,
  kElementwise, // CUDA's kernel computes each element by itself, and takes nothing
};
inline constexpr size_t kPlanSources = 4;

// Makes such a tensor (kFresh, kEmpty) in a block, which it takes over.
at::Tensor make_planned(const PlannedTensor &planned, openreg_block *block);

struct OutputPlan {
  std::atomic<bool> can_be_queued{false};
  // If there are any, a launch makes these changes first, and then has another plan.
  std::vector<PlannedResize> resizes;
  std::vector<PlannedReturn> returns;
  Placement results; // which allocations become results
  // If there are none, a launch allocates its fresh results in order, and nothing else.
  std::vector<MemoryEvent> events;
  PlanSource source = PlanSource::kNone; // of the events, or of there being none

  // The planned tensors of the kind kFresh, in order.
  std::vector<const PlannedTensor *> fresh_results() const;
  size_t result_bytes() const;                             // of all of these
  void set_result_bytes(const std::vector<size_t> &bytes); // of each of these

  // Allocates so on the device's current stream. Returns the blocks of the fresh results, in order.
  std::vector<Block> allocate(c10::DeviceIndex device) const;
};

// Makes a plan from a launch that has run. Its `returns` results are on top of the stack, as the
// kernel returned them; `allocations` are those that it made. `memory` is the operator's kind.
std::shared_ptr<OutputPlan> make_output_plan(const torch::jit::Stack &stack, size_t returns,
                                             c10::ArrayRef<Substituted> substituted,
                                             const Allocations &allocations, KernelMemory memory);

// The plans of one operator, a cache that drops the least recently used ones. Thread-safe.
class OutputPlans {
public:
  using Key = std::string;

  // Whether the value of this argument can change the shapes of the results. Floating-point numbers
  // and scalars cannot, unless the kernel rejects some values or treats them apart. So the key has
  // only their class, such as "above 1".
  static bool matters_by_value(const c10::Argument &argument);

  // Makes the key of a launch from its arguments and the global switches. The arguments are on top
  // of the stack with twins substituted. `by_value` has matters_by_value() of each argument.
  // Returns false if an argument has a type or layout that a key cannot describe.
  static bool make_key(const torch::jit::Stack &stack, const std::vector<bool> &by_value, Key &key);

  // Returns null if there is no plan.
  std::shared_ptr<OutputPlan> find(const Key &key);
  void learn(Key key, std::shared_ptr<OutputPlan> plan);

private:
  using Map = std::unordered_map<Key, std::shared_ptr<OutputPlan>>;
  void add_locked(Key key, std::shared_ptr<OutputPlan> plan);

  std::mutex mutex_;
  // Two generations. A plan found in the old one moves to the young one. When the young one is
  // full, it replaces the old one.
  Map young_, old_;
};

} // namespace openreg
