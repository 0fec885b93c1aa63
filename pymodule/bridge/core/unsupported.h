// Simulates a device that lacks operators or dtypes: OPENREG_BLOCK_OPERATORS and
// OPENREG_UNSUPPORTED_DTYPES.
//
// Real accelerators lack operators and dtypes. A listed operator raises NotImplementedError, and a
// tensor of a listed dtype raises TypeError, although openreg could run them. Each message names
// the operator, the dtype and the variable.
#pragma once

#include <ATen/core/operator_name.h>
#include <c10/core/ScalarType.h>
#include <c10/util/typeid.h>

#include <cstdint>

namespace openreg {

// Reads the two variables and replaces all device kernels of blocked operators by ones that raise.
// Warns if PyTorch does not have a blocked operator. Call it once, at import, after all other
// kernels of the bridge are registered.
void register_unsupported();

// Whether OPENREG_BLOCK_OPERATORS lists an operator.
bool is_blocked(const c10::OperatorName &name);
[[noreturn]] void refuse_operator(const c10::OperatorName &name);

// One bit per ScalarType: set for dtypes that device tensors must not have.
extern uint64_t unsupported_dtypes;

// `who`: what makes the tensor, an operator's name or a description.
[[noreturn]] void refuse_dtype(c10::ScalarType dtype, const char *who);

// Raises TypeError for an unsupported dtype. Called for every tensor that is created on a device.
inline void check_dtype(caffe2::TypeMeta dtype, const char *who) {
  if (unsupported_dtypes != 0) [[unlikely]] {
    const auto type = dtype.toScalarType();
    if ((unsupported_dtypes >> static_cast<int>(type) & 1) != 0) {
      refuse_dtype(type, who);
    }
  }
}

} // namespace openreg
