// Conversions of floats to integers as a GPU does them: a number outside of the dtype's range
// becomes the nearest limit. C++ does not define such a conversion, and a CPU often returns the
// smallest number.

#include <ATen/TensorIterator.h>
#include <ATen/ops/real.h>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/kernels.h"

namespace openreg {

namespace {

// The first number above an integer dtype's range, as a float.
template <class Float, class Integer>
constexpr Float
    kAbove = static_cast<Float>(Integer{1} << (std::numeric_limits<Integer>::digits - 1)) * 2;

// What a GPU's instruction returns for NaN.
template <class Integer, class Float> constexpr Integer of_nan() {
  if constexpr (sizeof(Integer) == 8 || std::same_as<Float, double>) {
    return static_cast<Integer>(uint64_t{1} << (8 * sizeof(Integer) - 1));
  } else {
    return 0;
  }
}

template <class Integer, class Float> Integer saturated(Float x) {
  using Limits = std::numeric_limits<Integer>;
  constexpr auto kSmallest = static_cast<Float>(Limits::min());
  if (x >= kAbove<Float, Integer>) {
    return Limits::max();
  }
  if (x != x) {
    return of_nan<Integer, Float>();
  }
  return x <= kSmallest ? Limits::min() : static_cast<Integer>(x);
}

// GPUs convert to 32 or 64 bits. Smaller dtypes have the lower bits of the result.
template <class Integer>
using Converted = std::conditional_t<
    std::same_as<Integer, uint8_t>, int64_t,
    std::conditional_t<(sizeof(Integer) < 4),
                       std::conditional_t<std::is_signed_v<Integer>, int32_t, uint32_t>, Integer>>;

template <class Integer, class Source> Integer converted(Source x) {
  using Float = std::conditional_t<std::same_as<Source, double>, double, float>;
  return static_cast<Integer>(saturated<Converted<Integer>>(static_cast<Float>(x)));
}

// Compiled for several instruction sets.
template <class Integer, class Source>
__attribute__((target_clones("arch=skylake-avx512", "avx2", "default"))) void
convert_dense(Integer *to, const Source *from, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    to[i] = converted<Integer>(from[i]);
  }
}

// The iterator's loop over `rows` rows of `n` elements. `strides` has byte strides of the result
// and the argument, first within a row, then from row to row.
template <class Integer, class Source>
void convert_rows(char **data, const int64_t *strides, int64_t n, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) {
    char *to = data[0] + row * strides[2];
    const char *from = data[1] + row * strides[3];
    if (strides[0] == sizeof(Integer) && strides[1] == sizeof(Source)) {
      convert_dense(reinterpret_cast<Integer *>(to), reinterpret_cast<const Source *>(from), n);
      continue;
    }
    for (int64_t i = 0; i < n; ++i) {
      *reinterpret_cast<Integer *>(to + i * strides[0]) =
          converted<Integer>(*reinterpret_cast<const Source *>(from + i * strides[1]));
    }
  }
}

using Loop = void (*)(char **data, const int64_t *strides, int64_t n, int64_t rows);

template <class Integer> Loop loop_from(at::ScalarType source) {
  switch (source) {
  case at::kDouble:
    return &convert_rows<Integer, double>;
  case at::kHalf:
    return &convert_rows<Integer, at::Half>;
  case at::kBFloat16:
    return &convert_rows<Integer, at::BFloat16>;
  default:
    return &convert_rows<Integer, float>;
  }
}

Loop loop_for(at::ScalarType integer, at::ScalarType source) {
  switch (integer) {
  case at::kByte:
    return loop_from<uint8_t>(source);
  case at::kChar:
    return loop_from<int8_t>(source);
  case at::kShort:
    return loop_from<int16_t>(source);
  case at::kInt:
    return loop_from<int32_t>(source);
  case at::kUInt16:
    return loop_from<uint16_t>(source);
  case at::kUInt32:
    return loop_from<uint32_t>(source);
  case at::kUInt64:
    return loop_from<uint64_t>(source);
  default:
    return loop_from<int64_t>(source);
  }
}

} // namespace

bool converts_to_integers(const at::Tensor &self, const at::Tensor &source) {
  return c10::isIntegralType(self.scalar_type(), /*includeBool=*/false) &&
         (source.is_floating_point() || source.is_complex()) && self.layout() == c10::kStrided &&
         source.layout() == c10::kStrided && !source._is_zerotensor();
}

void copy_integers(const at::Tensor &self, const at::Tensor &source) {
  auto from = source.is_complex() ? at::real(source) : source;
  if (c10::isFloat8Type(source.scalar_type())) {
    from = from.to(at::kFloat);
  }
  from = from.resolve_neg();
  auto iterator = at::TensorIteratorConfig()
                      .add_output(self)
                      .add_const_input(from)
                      .check_all_same_dtype(false)
                      .resize_outputs(false)
                      .build();
  const auto loop = loop_for(self.scalar_type(), from.scalar_type());
  iterator.for_each(loop);
}

} // namespace openreg
