// Launches an operator by its schema.
//
// A launch goes one of three ways (policy.h): it becomes a node of a graph (capture), is queued for
// the stream's worker (try_queue), or runs on the calling thread (run_inline). The second and the
// first need an output plan. boxed_operator.cpp has the ways; boxed_planning.cpp learns the plans.
// In a dry run a launch may instead only make its results (dry_launch.cpp).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <string>

#include "launch/argument_devices.h"
#include "launch/cpu_kernel.h"
#include "launch/kernel_memory.h"
#include "launch/memory_plan.h"
#include "launch/output_plan.h"
#include "launch/queued_launch.h"
#include "launch/substitution.h"

namespace openreg {

// The name for messages, profiles and tables by name: a host operator has that of the operator of
// PyTorch that it computes (host_operator.h).
const std::string &public_name(const c10::OperatorHandle &op);

// Whether an operator draws random numbers. Its CPU kernel would use the host's generator.
bool uses_rng(const c10::OperatorHandle &op);

// Whether an operator returns an object. The object may keep an argument's twin, which would
// outlive its memory.
bool returns_object(const c10::OperatorHandle &op);

// An operator with what a launch must know about it, derived once from its schema and tags.
class BoxedOperator {
public:
  // `kernel_key`: the CPU key whose kernel runs. An operator that draws random numbers is refused,
  // unless the caller asserts that it draws none with the arguments that it gets.
  enum class Rng { kRefused, kUnused };
  BoxedOperator(const c10::OperatorHandle &op, c10::DispatchKey kernel_key,
                Rng rng = Rng::kRefused);

  // Replaces the arguments on top of the stack by the results. run() follows the policy of
  // policy.h; queue() treats the launch as one that the policy wants queued.
  void run(torch::jit::Stack *stack);
  void queue(torch::jit::Stack *stack);

  LaunchCost &cost() { return cost_; }

private:
  // One call: its arguments on the stack, in which twins stand in for device tensors.
  struct Call {
    torch::jit::Stack *stack;
    SubstitutedList substituted{};
    bool differs_by_dtype = false; // the kernel does more than the CPU's (by_dtype.h)
    int64_t elements = 0;
    c10::DeviceIndex device = -1;         // where the kernel allocates; -1: on the host
    std::optional<Placement> placement{}; // nothing: only a plan knows it
    std::optional<MemoryPlan> memory{};   // of a launch that has no output plan yet
    PlanSource source = PlanSource::kNone;
  };

  void check_supported() const;
  Call begin_call(torch::jit::Stack *stack) const;
  template <class Devices>
  at::Tensor substitute_argument(Devices &devices, const at::Tensor &tensor, bool written,
                                 SubstitutedList &substituted) const;
  void substitute_arguments(Call &call) const;
  KernelTraits traits_of(const Call &call) const;

  void launch(Call &call, bool wants_queue);
  void capture(Call &call);
  bool try_queue(Call &call, const std::shared_ptr<OutputPlan> &plan);
  void run_inline(Call &call, OutputPlans::Key key, const std::shared_ptr<OutputPlan> &plan);
  void run_kernel(const Call &call, Allocations *allocations) const;

  bool make_key(const Call &call, OutputPlans::Key &key) const;
  std::shared_ptr<OutputPlan> find_plan(Call &call, OutputPlans::Key &key);
  void run_and_learn(Call &call, OutputPlans::Key key, bool has_plan,
                     std::optional<PreparedBlocks> &blocks);
  void count(const Call &call) const;
  torch::jit::Stack device_arguments(const Call &call) const;
  std::shared_ptr<OutputPlan> plan_from_placeholders(const Call &call) const;
  bool refresh_twins(Call &call) const;

  bool launch_dry(Call &call);
  std::shared_ptr<OutputPlan> plan_dry(Call &call);
  void make_results(Call &call, const OutputPlan &plan) const;
  void invent_results(Call &call);
  bool needs_values(const Call &call) const;
  bool has_mask_index(const Call &call) const;

  c10::OperatorHandle op_;
  const std::string &name_, &overload_; // of the schema, which lives as long as the operator
  bool is_blocked_;
  bool refuses_rng_;
  bool has_kernel_;
  bool returns_object_;
  size_t fresh_results_; // besides the arguments that it writes to
  KernelTraits traits_;
  CpuKernel kernel_;
  c10::DispatchKey kernel_key_;
  bool is_dense_;     // all tensor arguments are strided
  bool is_foreign_;   // the program brought the kernel, which may name ranges of its own
  bool is_copy_;      // of a composite tensor, between any two devices or a device and the host
  bool is_view_;      // does not read memory
  bool is_indexing_;  // aten::index
  bool overwrites_;   // it does not read the arguments that it writes to
  bool needs_values_; // the values of its arguments decide what it returns
  bool can_queue_;    // unless arguments or results forbid it
  int host_result_;   // index of the result that is a CPU tensor by contract; -1: none
  c10::SmallVector<bool, 8> written_;
  std::vector<bool> by_value_; // OutputPlans::matters_by_value() of each argument
  LaunchCost cost_;
  OutputPlans plans_;
};

} // namespace openreg
