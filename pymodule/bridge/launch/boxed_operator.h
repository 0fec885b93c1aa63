// A launch of any operator, by its schema.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include "launch/launch_device.h"
#include "launch/output_plan.h"
#include "launch/queued_launch.h"

namespace openreg {

// Whether an operator draws random numbers: a CPU kernel would draw the host's.
bool draws(const c10::OperatorHandle &op);

// Whether an operator returns an object, which may keep an argument: a twin, which would outlive
// its memory.
bool returns_object(const c10::OperatorHandle &op);

// What must be known of an operator to launch it: derived once from its schema and tags.
class BoxedOperator {
public:
  // `kernel_key`: the CPU key whose kernel runs. An operator that draws random numbers is refused,
  // unless its caller knows that it does not with such arguments.
  enum class Drawing { kRefused, kKnownNotTo };
  BoxedOperator(const c10::OperatorHandle &op, c10::DispatchKey kernel_key,
                Drawing drawing = Drawing::kRefused);

  // Launches the operator on the arguments on top of the stack, and puts its results there. By the
  // policy of policy.h, or as one that is to be queued.
  void run(torch::jit::Stack *stack);
  void queue(torch::jit::Stack *stack);

  LaunchCost &cost() { return cost_; }

private:
  using ExchangeList = c10::SmallVector<Exchanged, 4>;

  void check_servable() const;
  // Where the kernel allocates: -1 is the host.
  struct Place {
    c10::DeviceIndex device;
    uint8_t host_bytes; // see LaunchDevice
  };
  Place exchange_arguments(torch::jit::Stack *stack, ExchangeList &exchanged) const;
  template <class Where> void see(Where &where, const at::Tensor &tensor, bool written) const;
  at::Tensor exchange(const at::Tensor &tensor, bool written, ExchangeList &exchanged) const;
  void launch(torch::jit::Stack *stack, ExchangeList &exchanged, Place place, int64_t elements,
              bool is_queued);
  bool make_key(const torch::jit::Stack &stack, const ExchangeList &exchanged,
                Forecasts::Key &key) const;
  void run_and_learn(torch::jit::Stack *stack, const ExchangeList &exchanged, Place place,
                     int64_t elements, Forecasts::Key key, bool is_known);
  void capture(torch::jit::Stack *stack, ExchangeList &exchanged, Place place, int64_t elements);
  std::shared_ptr<Forecast> learn_on_stand_ins(const torch::jit::Stack &stack,
                                               const ExchangeList &exchanged, Place place) const;
  bool refresh_twins(torch::jit::Stack &stack, ExchangeList &exchanged) const;
  void run_now(torch::jit::Stack *stack, const ExchangeList &exchanged, Place place,
               Allocations *allocations) const;
  void exchange_results(torch::jit::Stack *stack, const ExchangeList &exchanged,
                        c10::DeviceIndex device) const;

  c10::OperatorHandle op_;
  const std::string &name_, &overload_; // of the schema, which lives as long as the operator
  bool is_blocked_;
  bool draws_;
  bool has_kernel_;
  bool returns_object_;
  bool has_results_; // that are not arguments which it writes to
  bool is_pointwise_;
  bool is_dense_;    // every tensor argument is strided
  bool is_copy_;     // of a sparse or such tensor, between any two devices, the host among them
  bool is_view_;     // reads no memory
  bool is_indexing_; // aten::index
  bool can_queue_;   // unless arguments or results forbid it
  int host_result_;  // the result that is a CPU tensor by contract; -1: none
  c10::SmallVector<bool, 8> written_;
  std::vector<bool> by_value_; // Forecasts::matters_by_value of each argument
  LaunchCost cost_;
  Forecasts forecasts_;
};

} // namespace openreg
