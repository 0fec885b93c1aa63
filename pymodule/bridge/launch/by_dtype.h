// Operators that compute otherwise than the CPU's kernels do, in some dtypes.
//
// A dtype that CUDA lacks is refused. A dtype that the CPU lacks, or computes too coarsely or
// slowly, is computed in a wider one (compat/cuda_dtypes.h): the kernel of the launch copies the
// arguments, calls the CPU's kernel, and rounds the results. A dtype in which the CPU's kernel
// returns something else has a kernel of openreg's own (kernels/kernels.h). What these kernels
// allocate is host memory. Dtypes without a row only pay for a test of their bits.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "compat/cuda_dtypes.h"
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

// The rows of one operator.
class ByDtype {
public:
  // `kernel_key`: the key of the CPU's kernel.
  ByDtype(const c10::OperatorHandle &op, c10::DispatchKey kernel_key);
  ~ByDtype();

  // Whether the tables have rows for an operator.
  static bool is_needed(const c10::OperatorName &name,
                        c10::DispatchKey kernel_key = c10::DispatchKey::CPU);

  // The bits of all dtypes that have a row.
  uint64_t bits() const { return bits_; }

  // Raises CUDA's error for arguments that its kernel refuses. Returns whether run() would do more
  // for the others than call the CPU's kernel.
  bool check(Arguments arguments) const;

  // Replaces the arguments on top of the stack, which are on the host, by the results. The caller
  // has excluded autograd.
  void run(torch::jit::Stack *stack) const;

private:
  class Rule;
  std::unique_ptr<const Rule> rule_;
  uint64_t bits_;
};

} // namespace openreg
