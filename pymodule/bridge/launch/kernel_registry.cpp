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

// Filled while the extension is loaded, read afterwards.
std::unordered_map<c10::OperatorName, Door> &doors() {
  static auto *doors = new std::unordered_map<c10::OperatorName, Door>();
  return *doors;
}

bool is_composite(const c10::OperatorHandle &op) {
  static constexpr std::array kKeys = {DispatchKey::CompositeImplicitAutograd,
                                       DispatchKey::CompositeExplicitAutograd,
                                       DispatchKey::CompositeExplicitAutogradNonFunctional};
  return std::ranges::any_of(kKeys, [&](auto key) { return op.hasKernelForDispatchKey(key); });
}

const char *how(const c10::OperatorHandle &op) {
  const auto &name = op.operator_name();
  if (is_blocked(name)) {
    return "refused";
  }
  const auto door = doors().find(name);
  if (door != doors().end()) {
    // One that draws random numbers has no kernel to be launched: a launch of it refuses.
    return door->second == Door::kTyped ? "typed" : can_be_boxed(op) ? "boxed" : "refused";
  }
  if (op.hasKernelForDispatchKey(kDeviceKeys.dense)) {
    return "native";
  }
  if (is_composite(op)) {
    return "composite";
  }
  return can_be_boxed(op) ? "boxed" : "refused"; // by the fallback
}

} // namespace

void note_door(const c10::OperatorName &name, Door door) {
  doors().insert_or_assign(name, door);
}

std::map<std::string, std::string> served_operators() {
  std::map<std::string, std::string> served;
  auto &dispatcher = c10::Dispatcher::singleton();
  for (const auto &name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (op.has_value()) { // else kernels without a schema: a library that is not loaded
      served.emplace(c10::toString(name), how(*op));
    }
  }
  return served;
}

} // namespace openreg
