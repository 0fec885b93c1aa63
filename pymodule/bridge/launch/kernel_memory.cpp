#include "launch/kernel_memory.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

namespace openreg {

namespace {

struct Row {
  std::string_view name;
  KernelMemory memory;
};

// Sorted by name; pymodule/list_kernel_memory.py writes it.
constexpr Row kRows[] = {
#include "kernel_memory_table.h"
};

KernelMemory kernel_memory_of(const c10::OperatorName &name) {
  if (is_foreign(name.name)) {
    return KernelMemory::kAsOnCuda;
  }
  const auto whole = c10::toString(name);
  const auto *const row = std::ranges::lower_bound(kRows, std::string_view(whole), {}, &Row::name);
  return row != std::end(kRows) && row->name == whole ? row->memory : KernelMemory::kUnknown;
}

} // namespace

bool is_foreign(std::string_view name) {
  return !name.starts_with("aten::") && !name.starts_with("openreg_host::");
}

KernelTraits kernel_traits(const c10::OperatorHandle &op) {
  const auto &name = op.operator_name();
  const bool converts_numbers = name.overload_name.find("Scalar") != std::string::npos;
  const bool is_pointwise = op.hasTag(at::Tag::pointwise) || converts_numbers;
  return {
      .memory = kernel_memory_of(name),
      .converts_arguments = is_pointwise && name.name != "aten::where", // which does not compute
      .converts_numbers = converts_numbers,
  };
}

} // namespace openreg
