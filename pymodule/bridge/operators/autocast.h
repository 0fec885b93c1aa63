#pragma once

#include <optional>
#include <string>
#include <vector>

namespace openreg {

// What autocast does with an operator's floating-point tensor arguments. Operators without a policy
// are left alone.
enum class CastPolicy {
  kLowerPrecision,     // cast to the autocast dtype
  kFloat32,            // cast to float32
  kFloat32SetDtype,    // a dtype argument that was not given becomes float32
  kFloat32AppendDtype, // call the overload with a dtype argument, with float32
  kPromote,            // cast to the widest floating type among the arguments
  kBanned,             // refuse: unsafe to autocast
};

// "lower_precision", "float32", "float32_set_dtype", "float32_append_dtype", "promote", "banned"
const char *name_of(CastPolicy policy);

struct AutocastRow {
  std::string operator_name; // without namespace: "addmm"
  std::string overload;      // "" for the default one
  CastPolicy policy;
  std::optional<std::string> replacement; // kFloat32AppendDtype: the overload to call
};

// Every operator that has a policy, in the order of the policies.
std::vector<AutocastRow> autocast_rows();

// Registers the autocast kernel of each. Called once, when the extension is loaded.
void register_autocast_kernels();

} // namespace openreg
