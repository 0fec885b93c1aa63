#include "launch/blas_launch.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "compat/blas_operators.h"
#include "core/no_warnings.h"
#include "core/registration.h"
#include "core/status.h"
#include "memory/allocation/blas_workspaces.h"

namespace openreg {

namespace {

using OwnedArguments = c10::SmallVector<c10::IValue, 8>;

class BlasKernel final : public c10::OperatorKernel {
public:
  BlasKernel(const c10::OperatorHandle &op, const BlasOperator &row)
      : launch_(op.getComputedKernelForDispatchKey(kDeviceKeys.dense)), row_(row),
        argument_count_(op.schema().arguments().size()) {}

  void operator()(const c10::OperatorHandle &op, c10::DispatchKeySet keys,
                  torch::jit::Stack *stack) {
    const auto on_stack = torch::jit::last(*stack, argument_count_);
    const OwnedArguments arguments(on_stack.begin(), on_stack.end());
    launch_.callBoxed(op, keys, stack);
    const auto library = row_.library(arguments);
    if (library != BlasLibrary::kNone) {
      ensure_blas_workspace(device_of(arguments), library);
    }
  }

private:
  static c10::DeviceIndex device_of(const OwnedArguments &arguments) {
    const auto *const found = std::ranges::find_if(arguments, [](const c10::IValue &argument) {
      return argument.isTensor() && argument.toTensor().device().type() == kDeviceType;
    });
    return found->toTensor().device().index();
  }

  c10::SafeKernelFunction launch_;
  const BlasOperator &row_;
  size_t argument_count_;
};

void register_all() {
  // Never freed: registrations last as long as the process.
  static auto *registrations = new std::vector<c10::RegistrationHandleRAII>();
  const NoWarnings silent;
  auto &dispatcher = c10::Dispatcher::singleton();
  for (const auto &name : dispatcher.getAllOpNames()) {
    const auto rows = blas_operators();
    const auto row = std::ranges::find(rows, name.name, &BlasOperator::name);
    const auto op = dispatcher.findSchema(name);
    if (row != rows.end() && op.has_value() && op->hasKernelForDispatchKey(kDeviceKeys.dense)) {
      registrations->push_back(dispatcher.registerImpl(
          name, kDeviceKeys.dense,
          c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<BlasKernel>(*op, *row)),
          std::nullopt, nullptr, "openreg: launch with a workspace"));
    }
  }
}

} // namespace

void register_blas_launches() {
  static std::once_flag once;
  const openreg_config *config = nullptr;
  if (openreg_config_get(&config) == OPENREG_OK && config->gpu_overhead) {
    std::call_once(once, &register_all);
  }
}

} // namespace openreg
