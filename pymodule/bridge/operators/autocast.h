// Autocast policies of operators.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace openreg {

// What autocast does with an operator's floating-point tensor arguments. It does not change
// operators without a policy.
enum class CastPolicy {
  kLowerPrecision,     // cast to the autocast dtype
  kFloat32,            // cast to float32
  kFloat32SetDtype,    // set a missing dtype argument to float32
  kFloat32AppendDtype, // call the overload with a dtype argument and pass float32
  kPromote,            // cast to the widest floating type among the arguments
  kBanned,             // raise: unsafe to autocast
};

// "lower_precision", "float32", "float32_set_dtype", "float32_append_dtype", "promote", "banned"
const char *name_of(CastPolicy policy);

struct AutocastRow {
  std::string operator_name; // without namespace: "addmm"
  std::string overload;      // "" for the default one
  CastPolicy policy;
  std::optional<std::string> replacement; // kFloat32AppendDtype: the overload to call
};

// Returns every operator that has a policy, in the order of the policies.
std::vector<AutocastRow> autocast_rows();

// Registers the autocast kernel of each. Call it once, when the extension is loaded.
void register_autocast_kernels();

} // namespace openreg
