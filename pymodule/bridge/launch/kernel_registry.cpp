#include "launch/kernel_registry.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "launch/boxed.h"
#include "core/device_type.h"
#include "core/unsupported.h"

namespace openreg {

namespace {

using c10::DispatchKey;

// Filled while the extension is loaded, only read afterwards.
std::unordered_map<c10::OperatorName, KernelKind> &kernel_kinds() {
  static auto *kernel_kinds = new std::unordered_map<c10::OperatorName, KernelKind>();
  return *kernel_kinds;
}

bool has_composite_kernel(const c10::OperatorHandle &op) {
  static constexpr std::array kKeys = {DispatchKey::CompositeImplicitAutograd,
                                       DispatchKey::CompositeExplicitAutograd,
                                       DispatchKey::CompositeExplicitAutogradNonFunctional};
  return std::ranges::any_of(kKeys, [&](auto key) { return op.hasKernelForDispatchKey(key); });
}

const char *implementation_of(const c10::OperatorHandle &op) {
  const auto &name = op.operator_name();
  if (is_blocked(name)) {
    return "refused";
  }
  const auto kind = kernel_kinds().find(name);
  if (kind != kernel_kinds().end()) {
    // A boxed launch of an operator that draws random numbers raises.
    return kind->second == KernelKind::kTyped ? "typed" : can_be_boxed(op) ? "boxed" : "refused";
  }
  if (op.hasKernelForDispatchKey(kDeviceKeys.dense)) {
    return "native";
  }
  if (has_composite_kernel(op)) {
    return "composite";
  }
  return can_be_boxed(op) ? "boxed" : "refused"; // by the fallback
}

} // namespace

void record_kernel_kind(const c10::OperatorName &name, KernelKind kind) {
  kernel_kinds().insert_or_assign(name, kind);
}

std::map<std::string, std::string> registered_operators() {
  std::map<std::string, std::string> operators;
  auto &dispatcher = c10::Dispatcher::singleton();
  for (const auto &name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (op.has_value()) { // else it has kernels without a schema: its library is not loaded
      operators.emplace(c10::toString(name), implementation_of(*op));
    }
  }
  return operators;
}

} // namespace openreg
