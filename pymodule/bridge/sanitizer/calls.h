// One call of an operator, and what its arguments and results say of the memory that it reads and
// writes.
#pragma once

#include <ATen/record_function.h>

#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "sanitizer/accesses.h"
#include "sanitizer/red_zones.h"
#include "sanitizer/roles.h"

namespace openreg {

// A call that is being made.
struct OperatorCall final : at::ObserverContext {
  // A function of a backward; an operator of another library, which is told of by what it calls, if
  // that is anything; a launch, or an operator of the host: what it calls is a part of it.
  enum class Kind { kBackward, kForeign, kLaunch, kHost } kind = Kind::kLaunch;
  OperatorCall *outer = nullptr;
  int exceptions = std::uncaught_exceptions(); // when it began
  uint64_t forward = 0; // where the forward was of the backward in which this is
  uint64_t place = 0;   // of an operator
  const Roles *roles = nullptr;
  const char *name = nullptr, *overload = nullptr;
  c10::DeviceIndex device = -1; // -1: that of the results
  c10::DeviceIndex other = -1;  // that a copy comes from; -1: there is none
  bool is_waited_for = false;
  bool sees_pinned = false;     // of pinned memory it is told, too
  std::optional<size_t> target; // what a copy writes to
  std::vector<size_t> sources;  // that are moved to results
  int64_t dim = 0;              // of a concatenation
  Accesses accesses;
  bool has_told = false;            // of a foreign one: something that it called was told of
  std::vector<at::Tensor> written;  // its arguments
  std::unique_ptr<RedZones> zones;  // null: they are not watched
  std::vector<c10::IValue> indexed; // all arguments, if some are indices
  std::vector<std::unique_ptr<OpenHost>> open; // what the host itself may touch, as long as it runs
};

// A tensor with memory of a device, and not one that stands for others.
bool is_plain(const at::Tensor &tensor);

template <class Do> void for_each_tensor(const c10::IValue &value, Do act) {
  if (value.isTensor()) {
    act(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor &tensor : value.toTensorVector()) {
      act(tensor);
    }
  } else if (value.isList()) {
    for (const auto &each : value.toListRef()) {
      if (each.isTensor()) {
        act(each.toTensor());
      }
    }
  }
}

// Before the call: the device, and the accesses of arguments.
void see_arguments(OperatorCall &call, c10::ArrayRef<const c10::IValue> inputs);

// After it: what else was written.
void see_result(OperatorCall &call, const at::Tensor &tensor);

} // namespace openreg
