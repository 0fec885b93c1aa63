// Registers boxed launches for every operator without a kernel of openreg's own.
//
// An operator with its own CPU kernel gets a boxed kernel, which takes precedence over a composite
// kernel that would launch several operators. All others get the fallback of the devices' dense
// key. So an operator that a program registers for the CPU later works as well. The same holds for
// the keys of composite tensors; their fallbacks are registered when the devices are first used.

#include "launch/boxed.h"

#include <ATen/Context.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/library.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "launch/boxed_operator.h"
#include "compat/nondeterministic.h"
#include "compat/operator_names.h"
#include "launch/ignore_warnings.h"
#include "launch/kernel_registry.h"
#include "launch/wider_state.h"
#include "streams/sync_debug.h"

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

// For an operator without a deterministic implementation on CUDA.
class NondeterministicKernel final : public c10::OperatorKernel {
public:
  NondeterministicKernel(const OperatorHandle &op, c10::DispatchKey kernel_key,
                         const Nondeterministic &row)
      : operator_(op, kernel_key), row_(row), argument_count_(op.schema().arguments().size()) {}
  void operator()(const OperatorHandle &, c10::DispatchKeySet, torch::jit::Stack *stack) {
    if (at::globalContext().deterministicAlgorithms()) [[unlikely]] {
      row_.alert(torch::jit::last(*stack, argument_count_));
    }
    operator_.run(stack);
  }

private:
  BoxedOperator operator_;
  const Nondeterministic &row_;
  size_t argument_count_;
};

// For an operator whose call waits for values of its first argument on CUDA.
class WaitingKernel final : public c10::OperatorKernel {
public:
  WaitingKernel(const OperatorHandle &op, c10::KernelFunction launch)
      : launch_(std::move(launch)), argument_count_(op.schema().arguments().size()) {}
  void operator()(const OperatorHandle &op, c10::DispatchKeySet keys, torch::jit::Stack *stack) {
    if (syncs_are_noted()) [[unlikely]] {
      const auto &tensor = torch::jit::last(*stack, argument_count_)[0].toTensor();
      if (tensor.numel() > 0 && tensor.device().type() == kDeviceType) {
        note_sync(tensor.device().index());
      }
    }
    launch_.callBoxed(op, keys, stack);
  }

private:
  c10::KernelFunction launch_;
  size_t argument_count_;
};

c10::KernelFunction make_launch(const OperatorHandle &op, DispatchKey kernel_key) {
  const auto *row = find_nondeterministic(op.operator_name());
  if (row != nullptr) {
    return c10::KernelFunction::makeFromBoxedFunctor(
        std::make_unique<NondeterministicKernel>(op, kernel_key, *row));
  }
  return c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<BoxedKernel>(op, kernel_key));
}

// For an operator that CUDA lacks. Raises PyTorch's error for a missing kernel, word for word.
class AbsentKernel final : public c10::OperatorKernel {
public:
  void operator()(const OperatorHandle &op, c10::DispatchKeySet, torch::jit::Stack *) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "Could not run '", op.operator_name(), "' with arguments from the '", key_,
        "' backend. This could be because the operator doesn't exist for this backend, or was "
        "omitted during the selective/custom build process (if using custom build).");
  }
  explicit AbsentKernel(DispatchKey key)
      : key_(in_cuda_mode()             ? c10::toString(key)
             : key == kDeviceKeys.dense ? "openreg"
                                        : "SparseCsropenreg") {}

private:
  std::string key_;
};

c10::KernelFunction make_kernel_without_wait(const OperatorHandle &op, DispatchKey key,
                                             DispatchKey kernel_key) {
  if (is_absent_on_cuda(op.operator_name().name)) {
    return c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<AbsentKernel>(key));
  }
  auto launch = make_launch(op, kernel_key);
  if (WiderState::is_needed(op.operator_name())) {
    return c10::KernelFunction::makeFromBoxedFunctor(
        std::make_unique<WiderState>(op, std::move(launch)));
  }
  return launch;
}

c10::KernelFunction make_kernel(const OperatorHandle &op, DispatchKey key, DispatchKey kernel_key) {
  if (waits_on_cuda(op.operator_name().name)) {
    return c10::KernelFunction::makeFromBoxedFunctor(
        std::make_unique<WaitingKernel>(op, make_kernel_without_wait(op, key, kernel_key)));
  }
  return make_kernel_without_wait(op, key, kernel_key);
}

template <c10::DispatchKey kKernelKey>
void boxed_fallback(const OperatorHandle &op, c10::DispatchKeySet, torch::jit::Stack *stack) {
  BoxedOperator(op, kKernelKey).run(stack);
}

// Registers the fallback for operators without a kernel of their own under `key`. Registering
// visits every operator and takes milliseconds, and so would unregistering at exit: the library is
// leaked.
template <DispatchKey kKernelKey> void register_fallback(DispatchKey key) {
  auto *library = new torch::Library(torch::Library::IMPL, "_", key, __FILE__, __LINE__);
  library->fallback(torch::CppFunction::makeFromBoxedFunction<&boxed_fallback<kKernelKey>>());
}

void register_boxed(const OperatorHandle &op, DispatchKey key, DispatchKey kernel_key) {
  // Never freed: registrations last as long as the process.
  static auto *registrations = new std::vector<c10::RegistrationHandleRAII>();
  registrations->push_back(c10::Dispatcher::singleton().registerImpl(
      op.operator_name(), key, make_kernel(op, key, kernel_key), std::nullopt, nullptr,
      "openreg: boxed launch"));
  if (key == kDeviceKeys.dense) {
    record_kernel_kind(op.operator_name(), KernelKind::kBoxed);
  }
}

// Registers boxed kernels for the operators with a kernel of their own under `kernel_key`, so that
// they take precedence over composite kernels.
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

void replace_cuda_kernel(const std::string &name) {
  const auto op = c10::Dispatcher::singleton().findSchema(torch::jit::parseName(name));
  if (op.has_value() && op->hasKernelForDispatchKey(DispatchKey::CPU)) {
    const IgnoreWarnings ignored;
    register_boxed(*op, kDeviceKeys.dense, DispatchKey::CPU);
  }
}

bool can_be_boxed(const OperatorHandle &op) {
  return !uses_rng(op) && !returns_object(op) &&
         op.hasComputedKernelForDispatchKey(DispatchKey::CPU);
}

void register_composite_fallbacks() {
  static std::once_flag once;
  std::call_once(once, [] {
    register_fallback<DispatchKey::SparseCPU>(kDeviceKeys.sparse);
    register_fallback<DispatchKey::SparseCsrCPU>(kDeviceKeys.sparse_csr);
    register_fallback<DispatchKey::QuantizedCPU>(kDeviceKeys.quantized);
    register_fallback<DispatchKey::NestedTensorCPU>(kDeviceKeys.nested);
  });
}

void register_boxed_kernels() {
  register_fallback<DispatchKey::CPU>(kDeviceKeys.dense);
  register_boxed_for(kDeviceKeys.dense, DispatchKey::CPU);
  register_boxed_for(kDeviceKeys.sparse, DispatchKey::SparseCPU);
  register_boxed_for(kDeviceKeys.sparse_csr, DispatchKey::SparseCsrCPU);
  register_boxed_for(kDeviceKeys.quantized, DispatchKey::QuantizedCPU);
  register_boxed_for(kDeviceKeys.nested, DispatchKey::NestedTensorCPU);
  for (const auto *name : kLaunchedComposites) {
    const auto op = c10::Dispatcher::singleton().findSchema(torch::jit::parseName(name));
    TORCH_INTERNAL_ASSERT(op.has_value(), name);
    register_boxed(*op, kDeviceKeys.dense, DispatchKey::CPU);
  }
}

} // namespace openreg
