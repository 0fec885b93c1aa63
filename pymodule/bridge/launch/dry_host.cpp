#include "launch/dry_host.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compat/operator_names.h"
#include "launch/hidden_operators.h"
#include "launch/ignore_warnings.h"
#include "launch/meta_plan.h"
#include "memory/allocation/host_blocks.h"
#include "tensor/known_values.h"

namespace openreg {

namespace {

using c10::DispatchKey;
using c10::OperatorHandle;

constexpr int kNone = -1;

// For each value that an operator returns: the index of the argument that it writes to and returns,
// or kNone.
std::vector<int> returned_arguments(const c10::FunctionSchema &schema) {
  std::vector<int> indices;
  for (const auto &value : schema.returns()) {
    auto &index = indices.emplace_back(kNone);
    for (size_t i = 0; value.alias_info() != nullptr && i < schema.arguments().size(); ++i) {
      const auto *alias = schema.arguments()[i].alias_info();
      if (alias != nullptr && alias->isWrite() &&
          alias->beforeSets() == value.alias_info()->beforeSets()) {
        index = static_cast<int>(i);
      }
    }
  }
  return indices;
}

bool is_floating(c10::ScalarType dtype) {
  return c10::isFloatingType(dtype) || c10::isComplexType(dtype);
}

std::string describe_number(const c10::IValue &value) {
  return value.isDouble() ? c10::str(value.toDouble()) : c10::str(value);
}

template <class Visit> void for_tensors(const c10::IValue &value, Visit visit) {
  if (value.isTensor()) {
    if (const auto &tensor = value.toTensor(); tensor.defined() && tensor.has_storage()) {
      visit(tensor);
    }
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const auto &each : value.toListRef()) {
      for_tensors(each, visit);
    }
  }
}

// An operator's kernel for the CPU in a dry run.
class DryHostKernel final : public c10::OperatorKernel {
public:
  explicit DryHostKernel(const OperatorHandle &op)
      : kernel_(op.getComputedKernelForDispatchKey(DispatchKey::CPU)),
        returned_(returned_arguments(op.schema())) {
    for (const auto &argument : op.schema().arguments()) {
      const auto *alias = argument.alias_info();
      is_written_.push_back(alias != nullptr && alias->isWrite());
      may_resize_ = may_resize_ || argument.is_out();
    }
    overwrites_ = may_resize_ || overwrites_first_argument(op.schema().name());
    returns_tensors_ = std::ranges::all_of(op.schema().returns(), [](const auto &value) {
      const auto &type = *value.type();
      return type.isSubtypeOf(*c10::TensorType::get()) ||
             type.isSubtypeOf(*c10::ListType::ofTensors());
    });
  }

  void operator()(const OperatorHandle &op, c10::DispatchKeySet keys, torch::jit::Stack *stack) {
    const auto call = HiddenOperators::exist() ? Call{} : look_at(*stack);
    const bool is_large = call.bytes > known_host_bytes();
    if (!is_large && !call.has_unknown && !call.overwrites_unknown) [[likely]] {
      kernel_.callBoxed(op, keys, stack);
    } else if (!is_large || !skip(op, call, stack)) {
      run(op, call, keys, stack);
    }
  }

private:
  struct Call {
    size_t bytes = 0;         // of all tensors
    bool has_unknown = false; // among those that the kernel reads
    bool overwrites_unknown = false;
    bool writes_floats = false;
    SubstitutedList tensors{}; // each one stands for itself
  };

  Call look_at(const torch::jit::Stack &stack) const {
    Call call;
    const auto arguments = torch::jit::last(stack, is_written_.size());
    for (size_t i = 0; i < arguments.size(); ++i) {
      for_tensors(arguments[i], [&](const at::Tensor &tensor) {
        call.bytes += tensor.nbytes();
        if (!is_known(tensor)) {
          const bool is_overwritten = overwrites_ && is_written_[i];
          (is_overwritten ? call.overwrites_unknown : call.has_unknown) = true;
        }
        call.writes_floats =
            call.writes_floats || (is_written_[i] && is_floating(tensor.scalar_type()));
        call.tensors.push_back({tensor, tensor, is_written_[i]});
      });
    }
    return call;
  }

  bool writes_only_to_arguments() const {
    return std::ranges::none_of(returned_, [](int index) { return index == kNone; });
  }

  // Replaces the arguments by results that were not computed. Returns false if the kernel must run.
  bool skip(const OperatorHandle &op, const Call &call, torch::jit::Stack *stack) const {
    if (!returns_tensors_) {
      return false;
    }
    torch::jit::Stack results;
    if (writes_only_to_arguments()) {
      if (!call.has_unknown && !call.writes_floats) {
        return false;
      }
      if (may_resize_ && plan_from_meta(op, *stack, call.tensors) == nullptr) {
        return false;
      }
      for (const int index : returned_) {
        results.push_back(torch::jit::peek(*stack, static_cast<size_t>(index), is_written_.size()));
      }
    } else {
      const auto plan = plan_from_meta(op, *stack, call.tensors);
      if (plan == nullptr || !is_skipped(call, *plan)) {
        return false;
      }
      results = make_results(call, *plan);
    }
    for (const auto &each : call.tensors) {
      if (each.written) {
        set_known(each.tensor, false);
      }
    }
    torch::jit::drop(*stack, is_written_.size());
    stack->insert(stack->end(), results.begin(), results.end());
    return true;
  }

  static bool is_skipped(const Call &call, const OutputPlan &plan) {
    bool has_floats = call.writes_floats;
    for (const auto &value : plan.returns) {
      for (const auto &tensor : value.tensors) {
        has_floats = has_floats || is_floating(tensor.dtype);
      }
    }
    return call.has_unknown || has_floats;
  }

  static torch::jit::Stack make_results(const Call &call, const OutputPlan &plan) {
    const auto make = [&](const PlannedTensor &planned) {
      switch (planned.kind) {
      case PlannedTensor::Kind::kUndefined:
        return at::Tensor();
      case PlannedTensor::Kind::kArgument:
        return call.tensors[planned.argument].tensor;
      default:
        auto made = at::empty_strided(planned.sizes, planned.strides,
                                      at::device(at::kCPU).dtype(planned.dtype));
        set_known(made, false);
        return made;
      }
    };
    torch::jit::Stack results;
    push_results(results, plan, make);
    return results;
  }

  // Runs the kernel. What it computes from known values is known, and from unknown ones unknown.
  void run(const OperatorHandle &op, const Call &call, c10::DispatchKeySet keys,
           torch::jit::Stack *stack) const {
    {
      const HiddenOperators hidden;
      kernel_.callBoxed(op, keys, stack);
    }
    if (!call.has_unknown) {
      for (const auto &each : call.tensors) {
        if (each.written && overwrites_) {
          note_overwritten(each.tensor);
        }
      }
      return;
    }
    bool is_read = false;
    const auto mark = [&](const at::Tensor &tensor) {
      set_known(tensor, false);
      is_read = is_read || (is_known(tensor) && tensor.numel() > 0);
    };
    for (const auto &each : call.tensors) {
      if (each.written) {
        mark(each.tensor);
      }
    }
    for (const auto &value : torch::jit::last(*stack, returned_.size())) {
      is_read = is_read || !returns_tensors_;
      for_tensors(value, mark);
    }
    if (is_read) {
      const auto &name = op.schema().name();
      record_unknown_read(name == "aten::_local_scalar_dense" ? "aten::item" : name.c_str(),
                          returns_tensors_ ? "zeros" : describe_number(stack->back()));
    }
  }

  c10::SafeKernelFunction kernel_;
  std::vector<int> returned_;
  std::vector<bool> is_written_;
  bool may_resize_ = false; // the arguments that it writes to
  bool overwrites_ = false; // it does not read them
  bool returns_tensors_ = true;
};

// Whether an operator only gives another view of its argument's memory, or other memory.
bool is_of_metadata(const OperatorHandle &op) {
  return op.hasTag(at::Tag::inplace_view) ||
         std::ranges::any_of(op.schema().returns(), [](const c10::Argument &value) {
           return value.alias_info() != nullptr && !value.alias_info()->isWrite();
         });
}

} // namespace

size_t known_host_bytes() {
  return std::max(dry_run().known_bytes, size_t{1} << 20);
}

void register_dry_host_kernels() {
  start_host_blocks(known_host_bytes() + 1);
  // Never freed: registrations last as long as the process.
  static auto *registrations = new std::vector<c10::RegistrationHandleRAII>();
  const IgnoreWarnings ignored;
  auto &dispatcher = c10::Dispatcher::singleton();
  auto names = dispatcher.getAllOpNamesForDispatchKey(DispatchKey::CPU);
  names.push_back({"aten::copy_", ""}); // which has one kernel for all devices
  for (const auto &name : names) {
    const auto op = dispatcher.findSchema(name);
    if (op.has_value() && std::string_view(name.name).starts_with("aten::") &&
        !is_of_metadata(*op)) {
      registrations->push_back(dispatcher.registerImpl(
          name, DispatchKey::CPU,
          c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<DryHostKernel>(*op)),
          std::nullopt, nullptr, "openreg: a kernel of the host in a dry run"));
    }
  }
}

} // namespace openreg
