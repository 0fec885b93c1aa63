#include "kernels/kernels.h"

#include <algorithm>
#include <array>

namespace openreg {

namespace {

constexpr Dtypes kIntegers{at::kByte, at::kChar, at::kShort, at::kInt, at::kLong};
constexpr Dtypes kAllIntegers = kIntegers | Dtypes{at::kUInt16, at::kUInt32, at::kUInt64};
constexpr Dtypes kOrdered =
    kIntegers | Dtypes{at::kBool, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};

using Arguments = c10::ArrayRef<c10::IValue>;

bool is_rounded(Arguments arguments) { // div
  return std::ranges::any_of(arguments, &c10::IValue::isString);
}

bool converts(Arguments arguments) { // copy_
  return converts_to_integers(arguments[0].toTensor(), arguments[1].toTensor());
}

void convert(const c10::OperatorHandle & /*op*/, torch::jit::Stack *stack) {
  const auto self = torch::jit::peek(*stack, 0, 3).toTensor();
  copy_integers(self, torch::jit::peek(*stack, 1, 3).toTensor());
  torch::jit::drop(*stack, 3);
  torch::jit::push(*stack, self);
}

// Sorted by name.
constexpr std::array kKernels = {
    ReplacedKernel{"aten::copy_", kAllIntegers, &converts, &convert},
    ReplacedKernel{"aten::div", kIntegers, &is_rounded, &divide_integers},
    ReplacedKernel{"aten::floor_divide", kIntegers, nullptr, &divide_integers},
    ReplacedKernel{"aten::fmod", kIntegers, nullptr, &divide_integers},
    ReplacedKernel{"aten::kthvalue", kOrdered, nullptr, &kthvalue_like_cuda},
    ReplacedKernel{"aten::mode", kOrdered, nullptr, &mode_like_cuda},
    ReplacedKernel{"aten::remainder", kIntegers, nullptr, &divide_integers},
    ReplacedKernel{"aten::sort", kOrdered, nullptr, &sort_like_cuda},
    ReplacedKernel{"aten::topk", kOrdered, nullptr, &topk_like_cuda},
};

static_assert(std::ranges::is_sorted(kKernels, {}, &ReplacedKernel::name));

const ReplacedKernel *find(std::string_view name) {
  const auto found = std::ranges::lower_bound(kKernels, name, {}, &ReplacedKernel::name);
  return found != kKernels.end() && found->name == name ? found : nullptr;
}

} // namespace

const ReplacedKernel *find_replaced_kernel(std::string_view name) {
  if (const auto *found = find(name)) {
    return found;
  }
  return name.ends_with('_') ? find(name.substr(0, name.size() - 1)) : nullptr;
}

} // namespace openreg
