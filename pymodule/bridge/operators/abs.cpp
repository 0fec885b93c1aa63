// abs through a DispatchStub: how a backend implements only the inner loop of an operator.
//
// PyTorch's own `native::abs` does everything around the loop. It determines the result's dtype and
// shape, allocates or resizes it, checks for overlap, and passes a TensorIterator to the stub. The
// stub calls the kernel of the iterator's device. Both parts are needed: PyTorch reaches the stub
// only because the operators are registered for the device, too.
//
// The kernel here replaces the iterator's addresses by kernel addresses and runs a loop over it.
// Dtypes whose absolute value is exact have a loop of their own. Complex numbers, whose last bit
// depends on the algorithm, and unsupported dtypes go on to the CPU's kernel.

#include <ATen/Operators.h>
#include <ATen/TensorIterator.h>

#include <cmath>
#include <type_traits>
#include <utility>

#include "compat/dispatch_stub.h"
#include "compat/native_kernels.h"
#include "core/registration.h"
#include "launch/typed.h"

namespace openreg {

namespace {

template <class T> T absolute(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::abs(x);
  } else if constexpr (std::is_unsigned_v<T>) {
    return x;
  } else if constexpr (std::is_integral_v<T>) { // the smallest number stays negative, as in PyTorch
    using Unsigned = std::make_unsigned_t<T>;
    return x < 0 ? static_cast<T>(Unsigned{0} - static_cast<Unsigned>(x)) : x;
  } else {
    return T(std::abs(static_cast<float>(x))); // half precision
  }
}

// Compiled for several instruction sets. `to` and `from` are equal or disjoint: PyTorch has refused
// partial overlap.
template <class T>
__attribute__((target_clones("arch=skylake-avx512", "avx2", "default"))) void
absolute_dense(T *to, const T *from, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    to[i] = absolute(from[i]);
  }
}

template <class T>
void absolute_row(char *to, const char *from, int64_t to_stride, int64_t from_stride, int64_t n) {
  const int64_t dense = sizeof(T);
  if (to_stride == dense && from_stride == dense) {
    absolute_dense(reinterpret_cast<T *>(to), reinterpret_cast<const T *>(from), n);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    *reinterpret_cast<T *>(to + i * to_stride) =
        absolute(*reinterpret_cast<const T *>(from + i * from_stride));
  }
}

// The iterator's loop over `rows` rows of `n` elements. `strides` has byte strides of the result
// and the argument, first within a row, then from row to row.
template <class T>
void absolute_rows(char **data, const int64_t *strides, int64_t n, int64_t rows) {
  for (int64_t i = 0; i < rows; ++i) {
    absolute_row<T>(data[0] + i * strides[2], data[1] + i * strides[3], strides[0], strides[1], n);
  }
}

using Loop = void (*)(char **data, const int64_t *strides, int64_t n, int64_t rows);

// Null: use the CPU's kernel.
Loop loop_for(at::ScalarType dtype) {
  switch (dtype) {
  case at::kBool: // CUDA supports it; the CPU does not
  case at::kByte:
    return &absolute_rows<uint8_t>;
  case at::kChar:
    return &absolute_rows<int8_t>;
  case at::kShort:
    return &absolute_rows<int16_t>;
  case at::kInt:
    return &absolute_rows<int32_t>;
  case at::kLong:
    return &absolute_rows<int64_t>;
  case at::kHalf:
    return &absolute_rows<at::Half>;
  case at::kBFloat16:
    return &absolute_rows<at::BFloat16>;
  case at::kFloat:
    return &absolute_rows<float>;
  case at::kDouble:
    return &absolute_rows<double>;
  default:
    return nullptr;
  }
}

// A copy of an iterator that does not keep its tensors. The allocator may reuse their memory in
// stream order as soon as the program drops them.
class QueuedRows final : public at::TensorIteratorBase {
public:
  explicit QueuedRows(const at::TensorIteratorBase &iterator) : at::TensorIteratorBase(iterator) {
    for (auto &operand : operands_) {
      at::OperandInfo without_tensor;
      without_tensor.data = operand.data;
      without_tensor.stride_bytes = operand.stride_bytes;
      operand = std::move(without_tensor);
    }
  }
  const at::Tensor &maybe_get_output(int64_t index) override { return tensor(index); }
};

void abs_kernel(at::TensorIteratorBase &iterator) {
  const auto loop = loop_for(iterator.dtype(0));
  if (loop == nullptr) {
    if (c10::isFloat8Type(iterator.dtype(1))) { // the CPU supports them; CUDA does not
      refuse_kernel_dtype("abs_cuda", iterator.dtype(1));
    }
    at::Tensor result = iterator.tensor(0);
    typed<at::_ops::abs_out>(iterator.tensor(1), result);
    return;
  }
  const auto device = iterator.device().index();
  if (skip_kernel({iterator.tensor(1)}, {iterator.tensor(0)})) {
    return;
  }
  iterator.unsafe_replace_operand(0, kernel_address(iterator.data_ptr(0)));
  iterator.unsafe_replace_operand(1, kernel_address(iterator.data_ptr(1)));
  if (const InlineGuard guard(device, InlineGuard::kIfIdle); guard.is_held()) {
    iterator.for_each(loop);
    return;
  }
  queue_on_stream(device, [rows = QueuedRows(iterator), loop]() mutable { rows.for_each(loop); });
}

// abs and abs_ call this as well. Makes the checks of every launch, then reaches the stub.
at::Tensor &abs_out(const at::Tensor &self, at::Tensor &out) {
  ArgumentDevices devices("aten::abs", "out");
  devices.check(self);
  devices.check(out);
  devices.check_written(out);
  devices.index();
  return native::abs_out(self, out);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  set_device_kernel(at::native::abs_stub, &abs_kernel);
  library.impl("abs", &native::abs);
  library.impl("abs_", &native::abs_);
  library.impl("abs.out", &abs_out);
}

} // namespace openreg
