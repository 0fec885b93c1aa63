// For kernels that are made of other operators.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

#include "core/device_type.h"

namespace openreg {

// What they call is not for autograd or autocast to see.
class BelowAutograd {
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_{kDeviceKeys.autocast};
};

// What an overload with `out` gives back. Resizes and copies by whatever the thread is above.
inline at::Tensor &into(at::Tensor &out, const at::Tensor &result) {
  out.resize_(result.sizes()).copy_(result);
  return out;
}

inline bool is_given(const std::optional<at::Tensor> &tensor) {
  return tensor.has_value() && tensor->defined();
}

} // namespace openreg
