// Launches of operators that support other dtypes on CUDA than on the CPU (compat/cuda_dtypes.h).
//
// A dtype that CUDA lacks is refused. A dtype that the CPU lacks is computed in a wider one:
// operators of the device copy the arguments, an ordinary launch computes, and the results are
// rounded to the dtype that the program asked for, all in stream order. Dtypes without a row only
// pay for a test of their bits.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "core/device_type.h"
#include "core/dtypes.h"

namespace openreg {

// The bits of the dtypes in which an argument may make an operator compute.
template <class T> constexpr uint64_t dtype_bits(const T &) {
  return 0;
}
inline uint64_t dtype_bits(const at::Tensor &tensor) {
  const auto dtype = tensor.scalar_type();
  // A complex number makes float16 complex32.
  const bool promotes = c10::isComplexType(dtype) && tensor.dim() == 0;
  return Dtypes::bit(dtype) | (promotes ? Dtypes::bit(at::kComplexHalf) : 0);
}
inline uint64_t dtype_bits(const std::optional<at::Tensor> &tensor) {
  return tensor.has_value() ? dtype_bits(*tensor) : 0;
}
inline uint64_t dtype_bits(const at::Scalar &number) {
  return number.isComplex() ? Dtypes::bit(at::kComplexHalf) : 0;
}
inline uint64_t dtype_bits(const std::optional<at::ScalarType> &dtype) {
  return dtype.has_value() ? Dtypes::bit(*dtype) : 0;
}

// Raises CUDA's error for a dtype that its kernel lacks. In openreg mode the kernel's name in it
// says openreg instead of CUDA.
[[noreturn]] void refuse_kernel_dtype(const char *cuda_name, at::ScalarType dtype);

class ByDtype {
public:
  // `key`: the devices' dispatch key under which the operator is launched.
  ByDtype(const c10::OperatorHandle &op, c10::DispatchKey key);
  ~ByDtype();

  // Whether the tables have rows for an operator under a key.
  static bool is_needed(const c10::OperatorName &name, c10::DispatchKey key = kDeviceKeys.dense);

  // The bits of all dtypes that have a row.
  uint64_t bits() const { return bits_; }

  // Handles the arguments on top of the stack: raises for a refused dtype; or computes in a wider
  // dtype, replaces them by the results and returns true; or leaves them for an ordinary launch and
  // returns false.
  bool run(torch::jit::Stack *stack) const;

private:
  class Rule;
  std::unique_ptr<const Rule> rule_;
  uint64_t bits_;
};

} // namespace openreg
