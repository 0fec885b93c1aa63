#include "launch/by_dtype.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/resize_as_sparse.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compat/kernel_names.h"
#include "compat/result_type.h"
#include "kernels/kernels.h"
#include "launch/cpu_kernel.h"

namespace openreg {

namespace {

using at::ScalarType;
using c10::IValue;

ScalarType signed_of(ScalarType dtype) {
  return dtype == at::kUInt16   ? at::kShort
         : dtype == at::kUInt32 ? at::kInt
         : dtype == at::kUInt64 ? at::kLong
                                : dtype;
}

ScalarType widened(ScalarType dtype, ComputedIn in) {
  switch (in) {
  case ComputedIn::kWider:
    return c10::isReducedFloatingType(dtype) ? at::kFloat
           : dtype == at::kComplexHalf       ? at::kComplexFloat
                                             : dtype;
  case ComputedIn::kSigned:
    return signed_of(dtype);
  case ComputedIn::kBytes:
    return dtype == at::kBool ? at::kByte : dtype;
  case ComputedIn::kIntegers:
    return dtype == at::kBool || signed_of(dtype) != dtype ? at::kLong : dtype;
  }
  return dtype;
}

// The dtype of a result that was computed in `wide` instead of `dtype`.
ScalarType rounded(ScalarType wide, ScalarType dtype, ComputedIn in) {
  switch (in) {
  case ComputedIn::kWider:
    return wide == at::kComplexFloat && dtype != at::kBFloat16 ? at::kComplexHalf
           : wide != at::kFloat                                ? wide
           : dtype == at::kComplexHalf                         ? at::kHalf
                                                               : dtype;
  case ComputedIn::kSigned:
    return wide == signed_of(dtype) ? dtype : wide;
  case ComputedIn::kBytes:
    return wide == at::kByte ? at::kBool : wide;
  case ComputedIn::kIntegers:
    return wide;
  }
  return wide;
}

at::Tensor as(const at::Tensor &tensor, ScalarType dtype) {
  return tensor.scalar_type() == dtype ? tensor : tensor.to(dtype);
}

bool has_no_elements(const IValue &argument) {
  return argument.isTensor() && argument.toTensor().defined() && argument.toTensor().numel() == 0;
}

bool is_strided(const IValue &argument) {
  return argument.isTensor() && argument.toTensor().defined() &&
         argument.toTensor().layout() == c10::kStrided;
}

bool is_number(c10::TypePtr type) {
  if (const auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  return type->kind() == c10::TypeKind::NumberType;
}

auto find_row(std::span<const WidenedRow> rows, ScalarType dtype, Arguments arguments) {
  return std::ranges::find_if(rows, [&](const WidenedRow &row) {
    return row.dtypes.contains(dtype) && (row.applies == nullptr || row.applies(arguments));
  });
}

const ReplacedKernel *replaced_kernel(std::string_view name, c10::DispatchKey kernel_key) {
  return kernel_key == c10::DispatchKey::CPU ? find_replaced_kernel(name) : nullptr;
}

} // namespace

void refuse_kernel_dtype(const char *cuda_name, ScalarType dtype) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, '"', kernel_name_of_mode(cuda_name),
                              "\" not implemented for '", c10::toString(dtype), "'");
}

// What an operator's schema, tags and rows say.
class ByDtype::Rule {
public:
  Rule(const c10::OperatorHandle &op, c10::DispatchKey kernel_key);
  uint64_t bits() const;
  bool check(Arguments arguments) const;
  void run(torch::jit::Stack *stack) const;

private:
  class Widened;
  ScalarType dtype_of(Arguments arguments) const;
  bool is_replaced(Arguments arguments, ScalarType dtype) const;
  void refuse(Arguments arguments, ScalarType dtype) const;

  struct Argument {
    bool promotes;   // a number, which takes part in type promotion
    bool is_written; // the kernel writes to it
    bool is_out;     // the kernel does not read it
  };

  c10::OperatorHandle op_;
  c10::DispatchKey kernel_key_;
  std::span<const WidenedRow> widened_;
  std::span<const RefusedRow> refused_;
  const ReplacedKernel *replaced_;
  bool is_pointwise_;
  std::optional<size_t> dtype_argument_; // the index of `dtype`
  std::vector<Argument> arguments_;
};

// One launch with wider arguments.
class ByDtype::Rule::Widened {
public:
  Widened(const Rule &rule, const WidenedRow &row, ScalarType dtype)
      : rule_(rule), in_(row.in), dtype_(dtype) {}

  void widen(std::span<IValue> arguments) {
    if (rule_.is_pointwise_) {
      check_overlap(arguments);
    }
    for (size_t i = 0; i < arguments.size(); ++i) {
      auto &argument = arguments[i];
      if (rule_.dtype_argument_ == i && !argument.isNone()) {
        argument = static_cast<int64_t>(widened(argument.toScalarType(), in_));
      } else if (argument.isTensor() && argument.toTensor().defined()) {
        argument = widen(argument.toTensor(), i);
      }
    }
  }

  // Copies wide tensors to the program's own and rounds the results.
  void narrow(std::span<IValue> results) {
    for (auto &[tensor, wide] : written_) {
      if (!tensor.sizes().equals(wide.sizes())) {
        if (tensor.layout() == c10::kStrided) {
          tensor.resize_(wide.sizes());
        } else {
          at::resize_as_sparse_(tensor, wide);
        }
      }
      tensor.copy_(wide);
    }
    for (auto &result : results) {
      if (result.isTensor() && result.toTensor().defined()) {
        result = narrow(result.toTensor());
      }
    }
  }

private:
  // The kernel's checks, on the program's own tensors instead of the copies.
  void check_overlap(std::span<const IValue> arguments) const {
    for (size_t i = 0; i < arguments.size(); ++i) {
      for (const auto &other : arguments) {
        if (rule_.arguments_[i].is_written && is_strided(arguments[i]) && is_strided(other)) {
          at::assert_no_partial_overlap(arguments[i].toTensor(), other.toTensor());
        }
      }
    }
  }

  at::Tensor widen(const at::Tensor &tensor, size_t argument) {
    const auto dtype = widened(tensor.scalar_type(), in_);
    if (dtype == tensor.scalar_type()) {
      return tensor;
    }
    if (!rule_.arguments_[argument].is_written) {
      return tensor.to(dtype);
    }
    if (tensor.layout() == c10::kStrided) {
      at::assert_no_internal_overlap(tensor);
    }
    // A sparse one keeps its indices.
    auto wide = rule_.arguments_[argument].is_out && tensor.layout() == c10::kStrided
                    ? at::empty(tensor.sizes(), tensor.options().dtype(dtype))
                    : tensor.to(dtype);
    written_.emplace_back(tensor, wide);
    return wide;
  }

  at::Tensor narrow(const at::Tensor &result) const {
    const auto found = std::ranges::find_if(
        written_, [&](const auto &each) { return each.second.is_same(result); });
    if (found != written_.end()) {
      return found->first;
    }
    return as(result, rounded(result.scalar_type(), dtype_, in_));
  }

  const Rule &rule_;
  ComputedIn in_;
  ScalarType dtype_;
  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 2> written_; // with its wide copy
};

ByDtype::Rule::Rule(const c10::OperatorHandle &op, c10::DispatchKey kernel_key)
    : op_(op), kernel_key_(kernel_key), widened_(widened_rows(op.schema().name(), kernel_key)),
      refused_(refused_rows(op.schema().name())),
      replaced_(replaced_kernel(op.schema().name(), kernel_key)),
      is_pointwise_(op.hasTag(at::Tag::pointwise)) {
  const auto &arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto *alias = arguments[i].alias_info();
    arguments_.push_back({is_number(arguments[i].type()), alias != nullptr && alias->isWrite(),
                          arguments[i].is_out()});
    if (arguments[i].name() == "dtype") {
      dtype_argument_ = i;
    }
  }
}

uint64_t ByDtype::Rule::bits() const {
  Dtypes dtypes;
  for (const auto &row : widened_) {
    dtypes = dtypes | row.dtypes;
  }
  for (const auto &row : refused_) {
    dtypes = dtypes | row.dtypes;
  }
  return (replaced_ != nullptr ? dtypes | replaced_->dtypes : dtypes).bits();
}

bool ByDtype::Rule::check(Arguments arguments) const {
  const auto dtype = dtype_of(arguments);
  refuse(arguments, dtype);
  if (is_replaced(arguments, dtype)) {
    return true;
  }
  const auto row = find_row(widened_, dtype, arguments);
  if (row == widened_.end()) {
    return false;
  }
  if (row->check != nullptr) {
    row->check(arguments);
  }
  return true;
}

void ByDtype::Rule::run(torch::jit::Stack *stack) const {
  const auto arguments = std::span(*stack).last(arguments_.size());
  const auto dtype = dtype_of(arguments);
  if (is_replaced(arguments, dtype)) {
    replaced_->run(op_, stack);
    return;
  }
  const auto row = find_row(widened_, dtype, arguments);
  if (row == widened_.end()) {
    call_kernel(op_, kernel_key_, stack);
    return;
  }
  Widened launch(*this, *row, dtype);
  launch.widen(arguments);
  call_kernel(op_, kernel_key_, stack);
  launch.narrow(std::span(*stack).last(op_.schema().returns().size()));
}

// The dtype in which an operator computes: the `dtype` argument, else what a pointwise operator's
// arguments promote to, else the first tensor's.
ScalarType ByDtype::Rule::dtype_of(Arguments arguments) const {
  if (dtype_argument_.has_value() && !arguments[*dtype_argument_].isNone()) {
    return arguments[*dtype_argument_].toScalarType();
  }
  native::ResultTypeState state;
  auto dtype = ScalarType::Undefined;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto &argument = arguments[i];
    if (argument.isTensor() && argument.toTensor().defined()) {
      dtype = dtype == ScalarType::Undefined ? argument.toTensor().scalar_type() : dtype;
      if (!is_pointwise_) {
        return dtype;
      }
      if (arguments_[i].is_out) {
        continue;
      }
      state = native::update_result_type_state(argument.toTensor(), state);
    } else if (is_pointwise_ && arguments_[i].promotes && argument.isScalar()) {
      state = native::update_result_type_state(argument.toScalar(), state);
    }
  }
  const auto promoted = native::result_type(state);
  return promoted != ScalarType::Undefined ? promoted : dtype;
}

bool ByDtype::Rule::is_replaced(Arguments arguments, ScalarType dtype) const {
  return replaced_ != nullptr && replaced_->dtypes.contains(dtype) &&
         (replaced_->applies == nullptr || replaced_->applies(arguments));
}

// CUDA's kernels check the dtype only if there is something to compute.
void ByDtype::Rule::refuse(Arguments arguments, ScalarType dtype) const {
  for (const auto &row : refused_) {
    if (row.dtypes.contains(dtype) && std::ranges::none_of(arguments, &has_no_elements) &&
        (row.applies == nullptr || row.applies(arguments))) {
      refuse_kernel_dtype(row.cuda_name, dtype);
    }
  }
}

ByDtype::ByDtype(const c10::OperatorHandle &op, c10::DispatchKey kernel_key)
    : rule_(std::make_unique<const Rule>(op, kernel_key)), bits_(rule_->bits()) {}

ByDtype::~ByDtype() = default;

bool ByDtype::is_needed(const c10::OperatorName &name, c10::DispatchKey kernel_key) {
  return !widened_rows(name.name, kernel_key).empty() || !refused_rows(name.name).empty() ||
         replaced_kernel(name.name, kernel_key) != nullptr;
}

bool ByDtype::check(Arguments arguments) const {
  return rule_->check(arguments);
}

void ByDtype::run(torch::jit::Stack *stack) const {
  rule_->run(stack);
}

} // namespace openreg
