// Division of integers as a GPU does it. It has no integer divider: CUDA's compiler expands a
// division into multiplications, which give some number for a division by zero. A CPU stops the
// program with a signal, so PyTorch's CPU kernels raise an error, or end the process when the
// quotient overflows.

#include <ATen/ScalarOps.h>
#include <ATen/ops/bitwise_not.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>

#include "kernels/kernels.h"

namespace openreg {

namespace {

bool is_any(const at::Tensor &condition) {
  return condition.any().item<bool>();
}

// Whether no divisor is zero or -1, for most programs: there is one, or all are positive.
bool are_plain(const at::Tensor &divisors) {
  if (divisors.numel() == 1) {
    const auto divisor = divisors.item<int64_t>();
    return divisor != 0 && divisor != -1;
  }
  return divisors.numel() == 0 || divisors.min().item<int64_t>() > 0;
}

at::Tensor filled(const at::Tensor &like, int64_t value) {
  return at::full_like(like, value, at::MemoryFormat::Contiguous);
}

at::Tensor tensor_of(const c10::IValue &value) {
  if (value.isTensor()) {
    return value.toTensor();
  }
  auto tensor = c10::scalar_to_tensor(value.toScalar());
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

int64_t smallest(at::ScalarType dtype) {
  return dtype == at::kInt ? std::numeric_limits<int32_t>::min()
                           : std::numeric_limits<int64_t>::min();
}

bool rounds_down(const c10::OperatorHandle &op, c10::ArrayRef<c10::IValue> arguments) {
  const auto &name = op.schema().name();
  if (name.starts_with("aten::floor_divide")) {
    return true;
  }
  const auto mode = std::ranges::find_if(arguments, &c10::IValue::isString);
  return mode != arguments.end() && mode->toStringRef() == "floor";
}

// What a division of `dividend` by zero returns: a number whose bits are all ones. Numbers of 64
// bits that fit in 32 are divided as such. A quotient that is rounded down is one less if the
// dividend is negative.
at::Tensor result_of_zero(const at::Tensor &dividend, bool is_rounded_down) {
  auto result = at::bitwise_not(at::zeros_like(dividend, at::MemoryFormat::Contiguous));
  if (dividend.scalar_type() == at::kLong) {
    constexpr int64_t kLargest = std::numeric_limits<uint32_t>::max();
    const auto is_short = dividend.ge(0).logical_and_(dividend.le(kLargest));
    result = at::where(is_short, filled(dividend, kLargest), result);
  }
  return is_rounded_down ? result.sub(dividend.lt(0).to(result.scalar_type())) : result;
}

} // namespace

void divide_integers(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  const auto count = op.schema().arguments().size();
  const auto arguments = torch::jit::last(*stack, count);
  if (!arguments[1].isTensor()) {
    call_pytorch(op, stack); // which calls the overload for two tensors
    return;
  }
  const auto self = tensor_of(arguments[0]);
  const auto other = arguments[1].toTensor();
  const auto dtype = at::result_type(self, other);
  if (are_plain(other)) {
    call_pytorch(op, stack);
    return;
  }
  const auto is_zero = other.eq(0);
  const bool has_zero = is_any(is_zero);
  // A quotient of 8 or 16 bits cannot overflow, because it is computed in 32.
  const bool may_overflow = dtype == at::kInt || dtype == at::kLong;
  const auto is_one = may_overflow
                          ? is_zero.logical_or(other.eq(-1).logical_and(self.eq(smallest(dtype))))
                          : is_zero;
  if (!is_any(is_one)) {
    call_pytorch(op, stack);
    return;
  }
  const bool is_rounded_down = rounds_down(op, arguments);
  const auto instead = has_zero ? result_of_zero(self.to(dtype), is_rounded_down) : at::Tensor();
  // The quotient of the smallest number and -1 is the smallest number again: that of 1.
  stack->at(stack->size() - count + 1) = at::where(is_one, filled(other, 1), other);
  call_pytorch(op, stack);
  if (has_zero) {
    const auto result = torch::jit::peek(*stack, 0, 1).toTensor();
    result.copy_(at::where(is_zero, instead, result));
  }
}

} // namespace openreg
