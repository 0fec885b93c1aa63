// A device that lacks things: OPENREG_BLOCK_OPERATORS and OPENREG_UNSUPPORTED_DTYPES.
//
// Real accelerators lack operators and dtypes. What these variables name is refused as such a
// device refuses it, whatever the launch could do: an operator with NotImplementedError, a dtype
// with TypeError. Each sentence names the operator, the dtype and the variable.
#pragma once

#include <ATen/core/operator_name.h>
#include <c10/core/ScalarType.h>
#include <c10/util/typeid.h>

#include <cstdint>

namespace openreg {

// Reads the two variables and puts a refusing kernel in the place of every kernel that a blocked
// operator has for the device. Warns of a blocked operator that PyTorch does not have. Called once,
// at import, after all other kernels of the bridge are registered.
void register_refusals();

// Whether the device lacks an operator.
bool is_blocked(const c10::OperatorName &name);
[[noreturn]] void refuse_operator(const c10::OperatorName &name);

// One bit for each ScalarType that no tensor on a device may have.
extern uint64_t unsupported_dtypes;

// `who` would make the tensor: an operator's name, or words for it.
[[noreturn]] void refuse_dtype(c10::ScalarType dtype, const char *who);

// Asked of every tensor that is to lie on a device.
inline void check_dtype(caffe2::TypeMeta dtype, const char *who) {
  if (unsupported_dtypes != 0) [[unlikely]] {
    const auto type = dtype.toScalarType();
    if ((unsupported_dtypes >> static_cast<int>(type) & 1) != 0) {
      refuse_dtype(type, who);
    }
  }
}

} // namespace openreg
