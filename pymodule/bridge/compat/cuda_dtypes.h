// Dtypes in which operators compute otherwise on CUDA than the CPU's kernels do.
//
// What the CPU's kernel lacks is computed in a wider dtype and rounded once, as CUDA's kernels do.
// So is what it computes in 16 bits where CUDA's kernel uses float32, and what it computes slowly:
// products in float16. A dtype that CUDA's kernel lacks raises CUDA's error. A launch does this
// (launch/by_dtype.h). Operators without a row compute alike, or have kernels of openreg's own.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <span>
#include <string_view>
#include <vector>

#include "core/dtypes.h"

namespace openreg {

// The dtype in which an operator is computed instead.
enum class ComputedIn {
  kWider,    // floats of 8 and 16 bits in float32, complex32 in complex64; the results are rounded
  kSigned,   // unsigned integers in signed ones of the same size; the results become unsigned
  kBytes,    // bool in uint8; the results become bool
  kIntegers, // bool and unsigned integers in int64; the results stay int64
};

using Arguments = c10::ArrayRef<c10::IValue>; // in the schema's order

struct WidenedRow {
  std::string_view name; // the operator, all overloads
  Dtypes dtypes;
  ComputedIn in = ComputedIn::kWider;
  void (*check)(Arguments arguments) = nullptr;   // raises CUDA's errors for these dtypes
  bool (*applies)(Arguments arguments) = nullptr; // nullptr: for all arguments
};

struct RefusedRow {
  std::string_view name;
  Dtypes dtypes;
  const char *cuda_name;                          // the kernel's name in CUDA's error
  bool (*applies)(Arguments arguments) = nullptr; // nullptr: for all arguments
};

// Returns an operator's rows. Most operators have none. An in-place operator has the rows of its
// functional form. `kernel_key`: the key of the CPU's kernel. Sparse layouts have more rows.
std::span<const WidenedRow> widened_rows(std::string_view name,
                                         c10::DispatchKey kernel_key = c10::DispatchKey::CPU);
std::span<const RefusedRow> refused_rows(std::string_view name);

// Appends the name of each row.
void append_dtype_rows(std::vector<std::string_view> &names);

} // namespace openreg
