// Launches of an operator that on CUDA has other dtypes than on the CPU (compat/cuda_dtypes.h).
//
// What CUDA lacks is refused. What the CPU lacks is computed with wider arguments: copied by
// operators of the device, launched like any other, and rounded to what the program asked for, in
// the order of the stream. All that dtypes without a row pay is a look at their bits.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "core/dtypes.h"

namespace openreg {

// Of an argument: the bits of the dtypes that its presence may make an operator compute in.
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

// Raises what CUDA raises for a dtype that its kernel lacks; in openreg mode by openreg's name.
[[noreturn]] void refuse_kernel_dtype(const char *cuda_name, at::ScalarType dtype);

class ByDtype {
public:
  // `key`: of the devices, under which the operator is launched.
  ByDtype(const c10::OperatorHandle &op, c10::DispatchKey key);
  ~ByDtype();

  // Whether an operator has rows.
  static bool is_needed(const c10::OperatorName &name);

  // Of the dtypes that have a row.
  uint64_t bits() const { return bits_; }

  // Refuses the arguments on top of the stack, or computes with wider ones and puts the results
  // there, or leaves them as they are for an ordinary launch: false.
  bool run(torch::jit::Stack *stack) const;

private:
  class Rule;
  std::unique_ptr<const Rule> rule_;
  uint64_t bits_;
};

} // namespace openreg
