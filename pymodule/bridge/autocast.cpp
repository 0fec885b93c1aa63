// Autocast: one boxed kernel for every operator of amp's policy table.
//
// It casts the floating-point tensor arguments as the operator's policy says and calls the operator
// again below autocast. Casts of parameters are cached for the outermost autocast region by
// PyTorch's own cache.

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "autocast.h"
#include "amp.h"
#include "status.h"

namespace openreg {

namespace {

using c10::IValue;
using c10::OperatorHandle;

constexpr c10::DispatchKey kAutocastKey = c10::DispatchKey::AutocastPrivateUse1;

bool is_eligible(const at::Tensor &tensor) {
  return at::autocast::is_eligible(tensor, kDeviceType);
}

// Applies `change` to every tensor among the arguments, in lists too.
template <class Change>
void for_each_tensor(torch::jit::Stack *stack, size_t arguments, Change change) {
  for (auto it = stack->end() - static_cast<std::ptrdiff_t>(arguments); it != stack->end(); ++it) {
    if (it->isTensor()) {
      *it = change(it->toTensor());
    } else if (it->isTensorList()) {
      c10::List<at::Tensor> changed;
      for (const auto &tensor : it->toTensorVector()) {
        changed.push_back(change(tensor));
      }
      *it = std::move(changed);
    }
  }
}

class AutocastKernel final : public c10::OperatorKernel {
public:
  AutocastKernel(const openreg_amp_entry &entry, const OperatorHandle &op)
      : entry_(entry), dtype_argument_(find_dtype(op)), other_(find_other(entry)) {}

  void operator()(const OperatorHandle &op, c10::DispatchKeySet, torch::jit::Stack *stack) {
    c10::impl::ExcludeDispatchKeyGuard below_autocast{c10::DispatchKeySet(kAutocastKey)};
    const auto arguments = op.schema().arguments().size();
    switch (entry_.policy) {
    case OPENREG_AMP_LOWER_PRECISION:
      cast(stack, arguments, at::autocast::get_autocast_dtype(kDeviceType));
      break;
    case OPENREG_AMP_FLOAT32:
      cast(stack, arguments, at::kFloat);
      break;
    case OPENREG_AMP_PROMOTE:
      cast(stack, arguments, widest(stack, arguments));
      break;
    case OPENREG_AMP_FLOAT32_SET_DTYPE:
      if (first_is_eligible(stack, arguments)) {
        auto &dtype = *(stack->end() - static_cast<std::ptrdiff_t>(arguments - dtype_argument_));
        if (dtype.isNone()) {
          dtype = at::kFloat;
        }
      }
      break;
    case OPENREG_AMP_FLOAT32_APPEND_DTYPE:
      stack->emplace_back(first_is_eligible(stack, arguments)
                              ? at::kFloat
                              : first(stack, arguments).toTensor().scalar_type());
      other_->callBoxed(stack);
      return;
    case OPENREG_AMP_BANNED:
      TORCH_CHECK(false, entry_.detail);
    }
    op.callBoxed(stack);
  }

private:
  static size_t find_dtype(const OperatorHandle &op) {
    const auto &arguments = op.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].name() == "dtype") {
        return i;
      }
    }
    return 0;
  }

  static std::optional<OperatorHandle> find_other(const openreg_amp_entry &entry) {
    if (entry.policy != OPENREG_AMP_FLOAT32_APPEND_DTYPE) {
      return std::nullopt;
    }
    return c10::Dispatcher::singleton().findSchemaOrThrow(
        (std::string("aten::") + entry.operator_name).c_str(), entry.detail);
  }

  static void cast(torch::jit::Stack *stack, size_t arguments, at::ScalarType dtype) {
    for_each_tensor(stack, arguments, [dtype](const at::Tensor &tensor) {
      return at::autocast::cached_cast(dtype, tensor, kDeviceType);
    });
  }

  static at::ScalarType widest(torch::jit::Stack *stack, size_t arguments) {
    auto dtype = at::autocast::get_lower_precision_fp_from_device_type(kDeviceType);
    for_each_tensor(stack, arguments, [&dtype](const at::Tensor &tensor) {
      if (tensor.defined()) {
        dtype = at::autocast::prioritize(dtype, tensor, kDeviceType);
      }
      return tensor;
    });
    return dtype;
  }

  static const IValue &first(torch::jit::Stack *stack, size_t arguments) {
    return *(stack->end() - static_cast<std::ptrdiff_t>(arguments));
  }

  static bool first_is_eligible(torch::jit::Stack *stack, size_t arguments) {
    const auto &value = first(stack, arguments);
    return value.isTensor() && is_eligible(value.toTensor());
  }

  openreg_amp_entry entry_;
  size_t dtype_argument_;
  std::optional<OperatorHandle> other_;
};

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

} // namespace

void register_autocast_kernels() {
  auto &dispatcher = c10::Dispatcher::singleton();
  static auto *registrations = new std::vector<c10::RegistrationHandleRAII>();
  size_t count = 0;
  const auto *table = openreg_amp_table(&count);
  for (const auto *entry = table; entry != table + count; ++entry) {
    const c10::OperatorName name(std::string("aten::") + entry->operator_name, entry->overload);
    const auto op = dispatcher.findSchema(name);
    TORCH_CHECK(op.has_value(), "openreg: the autocast table names ", name,
                ", which PyTorch lacks");
    registrations->push_back(dispatcher.registerImpl(
        name, kAutocastKey,
        c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<AutocastKernel>(*entry, *op)),
        std::nullopt, nullptr, "openreg: autocast"));
  }
}

} // namespace openreg
