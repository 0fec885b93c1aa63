#include "launch/wider_state.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace openreg {

namespace {

using TensorList = c10::List<at::Tensor>;

// Positions of the arguments in the schemas of _fused_adam_ and _fused_adamw_.
constexpr size_t kParameters = 0, kGradients = 1, kFirstState = 2, kMaxima = 4, kEndOfState = 5;

at::ScalarType dtype_of(const c10::IValue &tensors) {
  return tensors.toTensorList().get(0).scalar_type();
}

bool is_empty(const c10::IValue &tensors) {
  return tensors.toTensorList().empty();
}

// The messages are those of CUDA's kernels.
void check_dtypes(const std::string &operator_name, at::ArrayRef<c10::IValue> arguments) {
  const bool has_maxima = !is_empty(arguments[kMaxima]);
  const std::string name = std::string("Mixed-precision fused Adam") +
                           (operator_name == "aten::_fused_adamw_" ? "W" : "");
  TORCH_CHECK(dtype_of(arguments[kParameters]) == at::kFloat, name,
              " requires float32 params, got ", dtype_of(arguments[kParameters]));
  TORCH_CHECK(dtype_of(arguments[kGradients]) == at::kFloat, name, " requires float32 grads, got ",
              dtype_of(arguments[kGradients]));
  for (size_t i = kFirstState; i < kMaxima; ++i) {
    TORCH_CHECK(dtype_of(arguments[i]) == at::kBFloat16, name,
                " requires bfloat16 optimizer states, got ", dtype_of(arguments[i]));
  }
  TORCH_CHECK(!has_maxima || dtype_of(arguments[kMaxima]) == at::kBFloat16, name,
              " requires bfloat16 max_exp_avg_sqs, got ", dtype_of(arguments[kMaxima]));
}

TensorList widen(const TensorList &narrow) {
  TensorList wide;
  wide.reserve(narrow.size());
  for (const at::Tensor &tensor : narrow) {
    wide.push_back(tensor.to(at::kFloat));
  }
  return wide;
}

void copy(const TensorList &from, const TensorList &to) {
  for (size_t i = 0; i < from.size(); ++i) {
    to.get(i).copy_(from.get(i));
  }
}

} // namespace

WiderState::WiderState(const c10::OperatorHandle &op, c10::KernelFunction launch)
    : launch_(std::move(launch)), argument_count_(op.schema().arguments().size()) {}

bool WiderState::is_needed(const c10::OperatorName &name) {
  return name.name == "aten::_fused_adam_" || name.name == "aten::_fused_adamw_";
}

void WiderState::operator()(const c10::OperatorHandle &op, c10::DispatchKeySet keys,
                            torch::jit::Stack *stack) {
  auto arguments = torch::jit::last(*stack, argument_count_);
  if (is_empty(arguments[kParameters]) || is_empty(arguments[kFirstState]) ||
      dtype_of(arguments[kParameters]) == dtype_of(arguments[kFirstState])) [[likely]] {
    launch_.callBoxed(op, keys, stack);
    return;
  }
  check_dtypes(op.operator_name().name, arguments);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::vector<std::pair<TensorList, TensorList>> states; // wide, narrow
  const size_t first = stack->size() - argument_count_;
  for (size_t i = kFirstState; i < kEndOfState; ++i) {
    auto narrow = (*stack)[first + i].toTensorList();
    auto wide = widen(narrow);
    (*stack)[first + i] = wide;
    states.emplace_back(std::move(wide), std::move(narrow));
  }
  launch_.callBoxed(op, keys, stack);
  for (const auto &[wide, narrow] : states) {
    copy(wide, narrow);
  }
}

} // namespace openreg
