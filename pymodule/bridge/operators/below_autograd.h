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

inline bool is_given(const std::optional<at::Tensor> &tensor) {
  return tensor.has_value() && tensor->defined();
}

} // namespace openreg
