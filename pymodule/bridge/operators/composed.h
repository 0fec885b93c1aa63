// Helpers for kernels that call other operators.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

#include "core/device_type.h"

namespace openreg {

// While one lives, autograd and autocast ignore the operators that the kernel calls.
class BelowAutograd {
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_{kDeviceKeys.autocast};
};

// Resizes `out`, copies the result to it and returns it. Dispatches like any other call.
inline at::Tensor &into(at::Tensor &out, const at::Tensor &result) {
  out.resize_(result.sizes()).copy_(result);
  return out;
}

inline bool is_given(const std::optional<at::Tensor> &tensor) {
  return tensor.has_value() && tensor->defined();
}

} // namespace openreg
