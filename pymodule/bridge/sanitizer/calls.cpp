#include "sanitizer/calls.h"

#include <ATen/Context.h>

#include "core/device_type.h"
#include "sanitizer/call_sites.h"
#include "sanitizer/descriptions.h"
#include "sanitizer/host_memory.h"

namespace openreg {

// ---- the calling thread's calls -----------------------------------------------------------------

namespace {

constinit thread_local OperatorCall *innermost = nullptr;

} // namespace

std::unique_ptr<at::ObserverContext> enter_call(std::unique_ptr<OperatorCall> call) {
  call->outer = innermost;
  innermost = call.get();
  return call;
}

void leave_call(const OperatorCall &call) {
  innermost = call.outer;
}

OperatorCall *innermost_call() {
  return innermost;
}

bool is_in_launch() {
  return innermost != nullptr && innermost->kind == OperatorCall::Kind::kLaunch;
}

bool is_in_host_operator() {
  return innermost != nullptr && innermost->kind == OperatorCall::Kind::kHost;
}

bool defer_synchronize() {
  if (!is_in_launch()) {
    return false;
  }
  innermost->synchronizes = true;
  return true;
}

uint64_t call_site_of_launch() {
  return is_in_launch() ? innermost->call_site : current_call_site();
}

AllocationContext current_allocation() {
  if (!is_in_launch()) {
    return {0, false};
  }
  const auto &context = at::globalContext();
  const bool is_filled =
      context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
  return {innermost->call_site, innermost->roles->leaves_uninitialized && !is_filled};
}

// ---- tensors of a call --------------------------------------------------------------------------

bool is_plain(const at::Tensor &tensor) {
  const auto *impl = tensor.unsafeGetTensorImpl();
  return tensor.defined() && impl->device_type() == kDeviceType && impl->has_storage() &&
         impl->layout() == c10::kStrided;
}

namespace {

unsigned mode_of(Role role) {
  unsigned mode = 0;
  if ((role & kReads) != 0) {
    mode |= OPENREG_SANITIZER_READ | ((role & kMoves) != 0 ? OPENREG_SANITIZER_MOVED : 0);
  }
  if ((role & kWrites) != 0) {
    mode |= OPENREG_SANITIZER_WRITE;
  }
  if ((role & kPartial) != 0) {
    mode |= OPENREG_SANITIZER_PARTIAL;
  }
  return mode;
}

void add_device(OperatorCall &call, const at::Tensor &tensor) {
  const auto device = tensor.device().index();
  if (call.device < 0) {
    call.device = device;
  } else if (call.device != device) {
    call.source_device = device;
  }
}

void add_argument(OperatorCall &call, const at::Tensor &tensor, Role role, int argument) {
  if (is_plain(tensor)) {
    add_device(call, tensor);
  } else if (!call.includes_pinned || !is_known_pinned(tensor)) {
    return;
  }
  if (role == kUntouched || tensor.numel() == 0) {
    return;
  }
  const auto tag = describe(call.name, call.overload, argument, tensor);
  const auto added = call.accesses.add(tensor, mode_of(role), tag);
  if ((role & kMoves) != 0) {
    call.moved.push_back(added);
  }
  if ((role & kWrites) != 0) {
    call.target = added;
    if (call.kind == OperatorCall::Kind::kForeign) {
      call.written.push_back(tensor);
    }
  }
}

// The source of copy_() is broadcast to the sizes of `self`.
void add_copy(OperatorCall &call, c10::ArrayRef<const c10::IValue> inputs) {
  const auto &self = inputs[0].toTensor(), &source = inputs[1].toTensor();
  call.includes_pinned = true;
  add_argument(call, self, kWrites, 0);
  const bool is_on_device = is_plain(source);
  if ((is_on_device || is_known_pinned(source)) && self.numel() > 0 && source.dim() <= self.dim()) {
    if (is_on_device) {
      add_device(call, source);
    }
    const auto tag = describe(call.name, call.overload, 1, source);
    const auto added = call.accesses.add(source, OPENREG_SANITIZER_READ | OPENREG_SANITIZER_MOVED,
                                         tag, self.sizes());
    // The host's own writes to its memory are not seen, so host memory is never uninitialized.
    if (call.target.has_value() && is_plain(self)) {
      call.accesses.move(*call.target, added);
    }
  }
  const bool has_host = self.is_cpu() || source.is_cpu();
  call.synchronizes = has_host && !inputs[2].toBool();
}

// Returns whether an index selects at least one element. A mask may select none, and its values are
// not known before the operator runs.
bool selects_elements(const c10::IValue &index) {
  bool selects = true;
  for_each_tensor(index, [&](const at::Tensor &tensor) {
    selects = selects && (!tensor.defined() || (tensor.numel() > 0 && tensor.dtype() != at::kBool &&
                                                tensor.dtype() != at::kByte));
  });
  return selects;
}

// Returns whether the operator computes with elements of `self` that an index selects.
bool combines_with_self(const Roles &roles, c10::ArrayRef<const c10::IValue> inputs) {
  using Combines = Roles::Combines;
  if (roles.combines == Combines::kNever || roles.index < 0) {
    return false;
  }
  if (roles.combines == Combines::kIfFlag) {
    const auto &flag = inputs[static_cast<size_t>(roles.combine_flag)];
    if (!flag.isBool() || !flag.toBool()) {
      return false;
    }
  }
  return selects_elements(inputs[static_cast<size_t>(roles.index)]);
}

// Returns the role of argument `i` in this call. It may depend on other arguments: see Roles.
Role role_in_call(const Roles &roles, size_t i, c10::ArrayRef<const c10::IValue> inputs) {
  const auto role = roles.arguments[i];
  if (i == 0 && (role & kReads) != 0 && (role & kPartial) != 0) {
    return static_cast<Role>(combines_with_self(roles, inputs) ? role & ~kMoves : role | kMoves);
  }
  if (i == 0 && roles.beta >= 0) {
    const auto &beta = inputs[static_cast<size_t>(roles.beta)];
    return beta.isScalar() && beta.toScalar().equal(0) ? static_cast<Role>(role & kWrites) : role;
  }
  if ((i == 1 || i == 2) && roles.output_mask >= 0) {
    const auto &mask = inputs[static_cast<size_t>(roles.output_mask)];
    return mask.isBoolList() && !mask.toBoolList()[2 - i] ? kUntouched : role;
  }
  return role;
}

void add_concatenation(OperatorCall &call, size_t result, const at::Tensor &tensor) {
  const auto dim = static_cast<size_t>(call.dim < 0 ? call.dim + tensor.dim() : call.dim);
  int64_t start = 0;
  for (const auto source : call.moved) {
    const auto size = call.accesses.size_of(source, dim);
    const auto part = call.accesses.add_part(result, dim, start, size);
    call.accesses.move(part, source);
    start += size;
  }
  call.accesses.drop(result);
}

} // namespace

void add_arguments(OperatorCall &call, c10::ArrayRef<const c10::IValue> inputs) {
  const auto &roles = *call.roles;
  if (roles.movement == Roles::Movement::kCopy && inputs.size() == 3 && inputs[0].isTensor() &&
      inputs[1].isTensor()) {
    add_copy(call, inputs);
    return;
  }
  for (size_t i = 0; i < inputs.size() && i < roles.arguments.size(); ++i) {
    const auto role = role_in_call(roles, i, inputs);
    for_each_tensor(inputs[i], [&](const at::Tensor &tensor) {
      add_argument(call, tensor, role, static_cast<int>(i));
    });
  }
  if (roles.movement == Roles::Movement::kConcatenation && inputs.size() >= 2 &&
      inputs[1].isInt()) {
    call.dim = inputs[1].toInt();
  }
}

void add_result(OperatorCall &call, const at::Tensor &tensor) {
  if (!is_plain(tensor) || tensor.numel() == 0) {
    return;
  }
  if (call.device < 0) {
    call.device = tensor.device().index();
  }
  if (call.roles->leaves_uninitialized || call.accesses.writes(tensor)) {
    return;
  }
  const auto tag = describe(call.name, call.overload, -1, tensor);
  const auto added = call.accesses.add(tensor, OPENREG_SANITIZER_WRITE, tag);
  if (call.roles->movement == Roles::Movement::kConcatenation) {
    add_concatenation(call, added, tensor);
  }
}

} // namespace openreg
