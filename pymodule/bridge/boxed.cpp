// The boxed door: every operator that has no kernel of ours is launched by its schema.
//
// Registered for every operator that has a CPU kernel of its own (so that it wins over composite
// kernels that would take the long way), and as the fallback of the PrivateUse1 key for all others:
// an operator that a program registers for the CPU later works without a line more. The same for
// the keys of tensors that are made of dense ones.

#include "boxed.h"

#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/library.h>

#include <array>
#include <memory>
#include <vector>

#include "boxed_operator.h"
#include "served.h"

namespace openreg {

namespace {

using c10::DispatchKey;
using c10::OperatorHandle;

class BoxedKernel final : public c10::OperatorKernel {
public:
  BoxedKernel(const OperatorHandle &op, c10::DispatchKey kernel_key) : operator_(op, kernel_key) {}
  void operator()(const OperatorHandle &, c10::DispatchKeySet, torch::jit::Stack *stack) {
    operator_.run(stack);
  }

private:
  BoxedOperator operator_;
};

template <c10::DispatchKey kKernelKey>
void boxed_fallback(const OperatorHandle &op, c10::DispatchKeySet, torch::jit::Stack *stack) {
  BoxedOperator(op, kKernelKey).run(stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&boxed_fallback<DispatchKey::CPU>>());
}
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, library) {
  library.fallback(
      torch::CppFunction::makeFromBoxedFunction<&boxed_fallback<DispatchKey::SparseCPU>>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, library) {
  library.fallback(
      torch::CppFunction::makeFromBoxedFunction<&boxed_fallback<DispatchKey::SparseCsrCPU>>());
}
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, library) {
  library.fallback(
      torch::CppFunction::makeFromBoxedFunction<&boxed_fallback<DispatchKey::QuantizedCPU>>());
}
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, library) {
  library.fallback(
      torch::CppFunction::makeFromBoxedFunction<&boxed_fallback<DispatchKey::NestedTensorCPU>>());
}

// Composites that work on a CPU tensor and not on a device's, because they look at the device or
// call kernels of the CPU directly. A launch gives them twins.
constexpr std::array<const char *, 2> kLaunchedComposites = {
    "aten::conj_physical_",
    "aten::mode.values",
};

void register_boxed(const OperatorHandle &op, DispatchKey key, DispatchKey kernel_key) {
  // Registrations last as long as the process.
  static auto *registrations = new std::vector<c10::RegistrationHandleRAII>();
  registrations->push_back(c10::Dispatcher::singleton().registerImpl(
      op.operator_name(), key,
      c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<BoxedKernel>(op, kernel_key)),
      std::nullopt, nullptr, "openreg: boxed launch"));
  if (key == DispatchKey::PrivateUse1) {
    note_door(op.operator_name(), Door::kBoxed);
  }
}

// For the operators with a kernel of their own under `kernel_key`, so that it wins over composite
// kernels.
void register_boxed_for(DispatchKey key, DispatchKey kernel_key) {
  auto &dispatcher = c10::Dispatcher::singleton();
  for (const auto &name : dispatcher.getAllOpNamesForDispatchKey(kernel_key)) {
    const auto op = dispatcher.findSchema(name);
    if (op.has_value() && !op->hasKernelForDispatchKey(key)) {
      register_boxed(*op, key, kernel_key);
    }
  }
}

} // namespace

bool can_be_boxed(const OperatorHandle &op) {
  return !draws(op) && !returns_object(op) && op.hasComputedKernelForDispatchKey(DispatchKey::CPU);
}

void register_boxed_kernels() {
  register_boxed_for(DispatchKey::PrivateUse1, DispatchKey::CPU);
  register_boxed_for(DispatchKey::SparsePrivateUse1, DispatchKey::SparseCPU);
  register_boxed_for(DispatchKey::SparseCsrPrivateUse1, DispatchKey::SparseCsrCPU);
  register_boxed_for(DispatchKey::QuantizedPrivateUse1, DispatchKey::QuantizedCPU);
  register_boxed_for(DispatchKey::NestedTensorPrivateUse1, DispatchKey::NestedTensorCPU);
  for (const auto *name : kLaunchedComposites) {
    const auto op = c10::Dispatcher::singleton().findSchema(torch::jit::parseName(name));
    TORCH_INTERNAL_ASSERT(op.has_value(), name);
    register_boxed(*op, DispatchKey::PrivateUse1, DispatchKey::CPU);
  }
}

} // namespace openreg
