// Calls of operators: the innermost call of each thread, and the memory accesses that a call's
// arguments and results imply.
#pragma once

#include <ATen/record_function.h>

#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "sanitizer/accesses.h"
#include "sanitizer/red_zones.h"
#include "sanitizer/roles.h"
#include "sanitizer/session.h"

namespace openreg {

// A call in progress. A call nested in a launch or in an operator of the host is a part of it.
struct OperatorCall final : at::ObserverContext {
  enum class Kind {
    kBackward, // an autograd function of a backward
    kForeign,  // an operator of another library; the operators that it calls are reported, if any
    kLaunch,   // an operator of a device
    kHost,     // an operator of the CPU
  } kind = Kind::kLaunch;
  OperatorCall *outer = nullptr;
  int exceptions = std::uncaught_exceptions(); // when the call began
  uint64_t forward_call_site = 0;              // in a backward: the call site of its forward
  uint64_t call_site = 0;                      // of an operator
  const Roles *roles = nullptr;
  const char *name = nullptr, *overload = nullptr;
  c10::DeviceIndex device = -1;        // -1: the device of the results
  c10::DeviceIndex source_device = -1; // of a copy between devices; otherwise -1
  bool synchronizes = false;           // the host waits for the operator
  bool includes_pinned = false;        // accesses to pinned memory are reported too
  std::optional<size_t> target;        // the access that a copy writes
  std::vector<size_t> moved;           // the accesses that are moved to results
  int64_t dim = 0;                     // of a concatenation
  Accesses accesses;
  bool has_reported = false;           // a nested operator was reported
  std::vector<at::Tensor> written;     // arguments that a foreign operator writes
  std::unique_ptr<RedZones> red_zones; // null: not checked
  std::vector<c10::IValue> indexed;    // all arguments, if some are indices
  std::vector<std::unique_ptr<HostAccess>> host_accesses; // that the host may perform meanwhile
};

// ---- the calling thread's calls -----------------------------------------------------------------

// Makes a call the innermost one, and makes its outer call the innermost one again.
std::unique_ptr<at::ObserverContext> enter_call(std::unique_ptr<OperatorCall> call);
void leave_call(const OperatorCall &call);

OperatorCall *innermost_call(); // null: none
bool is_in_launch();
bool is_in_host_operator();

// In a launch, the host's wait is reported after the launch. Returns whether the thread is in one.
bool defer_synchronize();

// The call site of the thread's launch.
uint64_t call_site_of_launch();

// What the thread's innermost launch allocates: its call site, and whether the operator leaves the
// memory uninitialized.
struct AllocationContext {
  uint64_t call_site;
  bool leaves_uninitialized;
};
AllocationContext current_allocation();

// ---- tensors of a call --------------------------------------------------------------------------

// Returns whether a tensor has memory on a device and does not stand for other tensors.
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

// Before the call: sets its device, and adds the accesses to its arguments.
void add_arguments(OperatorCall &call, c10::ArrayRef<const c10::IValue> inputs);

// After the call: adds the write of a result that is not one of the arguments.
void add_result(OperatorCall &call, const at::Tensor &tensor);

} // namespace openreg
