// Dtypes that operators have on CUDA and not on the CPU, and the other way round.
//
// What the CPU's kernel lacks is computed in a wider dtype and rounded once, as CUDA's kernels
// compute; what CUDA's kernel lacks is refused in its words. A launch does both
// (launch/by_dtype.h). Operators without a row have on the CPU what they have on CUDA, or kernels
// of openreg's own.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <span>
#include <string_view>
#include <vector>

#include "core/dtypes.h"

namespace openreg {

// In which dtype an operator is computed instead.
enum class ComputedIn {
  kWider,    // float16 and bfloat16 in float32, complex32 in complex64; results are rounded
  kBytes,    // bool in uint8; results are bool again
  kIntegers, // bool in int64, which results stay
};

using Arguments = c10::ArrayRef<c10::IValue>; // by the schema

struct WidenedRow {
  std::string_view name; // of the operator: all overloads
  Dtypes dtypes;
  ComputedIn in = ComputedIn::kWider;
  void (*check)(Arguments arguments) = nullptr; // raises what CUDA raises with these dtypes
};

struct RefusedRow {
  std::string_view name;
  Dtypes dtypes;
  const char *cuda_name;                          // by which CUDA's sentence calls the kernel
  bool (*applies)(Arguments arguments) = nullptr; // nullptr: with any arguments
};

// An operator's rows; none for most operators.
std::span<const WidenedRow> widened_rows(std::string_view name);
std::span<const RefusedRow> refused_rows(std::string_view name);

// The name of each row.
void append_dtype_rows(std::vector<std::string_view> &names);

} // namespace openreg
