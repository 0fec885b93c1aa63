#include "sanitizer/calls.h"

#include "core/device_type.h"
#include "sanitizer/descriptions.h"
#include "sanitizer/host_memory.h"

namespace openreg {

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
  if ((role & kPartly) != 0) {
    mode |= OPENREG_SANITIZER_PARTLY;
  }
  return mode;
}

void see_device(OperatorCall &call, const at::Tensor &tensor) {
  const auto device = tensor.device().index();
  if (call.device < 0) {
    call.device = device;
  } else if (call.device != device) {
    call.other = device;
  }
}

void see_argument(OperatorCall &call, const at::Tensor &tensor, Role role, int argument) {
  if (is_plain(tensor)) {
    see_device(call, tensor);
  } else if (!call.sees_pinned || !is_known_pinned(tensor)) {
    return;
  }
  if (role == kUntouched || tensor.numel() == 0) {
    return;
  }
  const auto tag = describe(call.name, call.overload, argument, tensor);
  const auto added = call.accesses.add(tensor, mode_of(role), tag);
  if ((role & kMoves) != 0) {
    call.sources.push_back(added);
  }
  if ((role & kWrites) != 0) {
    call.target = added;
    if (call.kind == OperatorCall::Kind::kForeign) {
      call.written.push_back(tensor);
    }
  }
}

// A copy reads what it is given as often as that is broadcast.
void see_copy(OperatorCall &call, c10::ArrayRef<const c10::IValue> inputs) {
  const auto &self = inputs[0].toTensor(), &source = inputs[1].toTensor();
  call.sees_pinned = true;
  see_argument(call, self, kWrites, 0);
  const bool is_on_device = is_plain(source);
  if ((is_on_device || is_known_pinned(source)) && self.numel() > 0 && source.dim() <= self.dim()) {
    if (is_on_device) {
      see_device(call, source);
    }
    const auto tag = describe(call.name, call.overload, 1, source);
    const auto added = call.accesses.add(source, OPENREG_SANITIZER_READ | OPENREG_SANITIZER_MOVED,
                                         tag, self.sizes());
    // What the host writes to its memory by itself is not seen: there nothing is unwritten.
    if (call.target.has_value() && is_plain(self)) {
      call.accesses.move(*call.target, added);
    }
  }
  const bool has_host = self.is_cpu() || source.is_cpu();
  call.is_waited_for = has_host && !inputs[2].toBool();
}

// As far as other arguments say it: with `beta` of 0 what is added to is not looked at, and of a
// convolution's backward the input is only for the weight's gradient, the weight for the input's.
Role role_in(const Roles &roles, size_t i, c10::ArrayRef<const c10::IValue> inputs) {
  const auto role = roles.arguments[i];
  if (i == 0 && roles.beta >= 0) {
    const auto &beta = inputs[static_cast<size_t>(roles.beta)];
    return beta.isScalar() && beta.toScalar().equal(0) ? static_cast<Role>(role & kWrites) : role;
  }
  if ((i == 1 || i == 2) && roles.mask >= 0) {
    const auto &mask = inputs[static_cast<size_t>(roles.mask)];
    return mask.isBoolList() && !mask.toBoolList()[2 - i] ? kUntouched : role;
  }
  return role;
}

void see_concatenation(OperatorCall &call, size_t result, const at::Tensor &tensor) {
  const auto dim = static_cast<size_t>(call.dim < 0 ? call.dim + tensor.dim() : call.dim);
  int64_t start = 0;
  for (const auto source : call.sources) {
    const auto size = call.accesses.size_of(source, dim);
    const auto part = call.accesses.add_part(result, dim, start, size);
    call.accesses.move(part, source);
    start += size;
  }
  call.accesses.drop(result);
}

} // namespace

void see_arguments(OperatorCall &call, c10::ArrayRef<const c10::IValue> inputs) {
  const auto &roles = *call.roles;
  if (roles.movement == Roles::Movement::kCopy && inputs.size() == 3 && inputs[0].isTensor() &&
      inputs[1].isTensor()) {
    see_copy(call, inputs);
    return;
  }
  for (size_t i = 0; i < inputs.size() && i < roles.arguments.size(); ++i) {
    const auto role = role_in(roles, i, inputs);
    for_each_tensor(inputs[i], [&](const at::Tensor &tensor) {
      see_argument(call, tensor, role, static_cast<int>(i));
    });
  }
  if (roles.movement == Roles::Movement::kConcatenation && inputs.size() >= 2 &&
      inputs[1].isInt()) {
    call.dim = inputs[1].toInt();
  }
}

void see_result(OperatorCall &call, const at::Tensor &tensor) {
  if (!is_plain(tensor) || tensor.numel() == 0) {
    return;
  }
  if (call.device < 0) {
    call.device = tensor.device().index();
  }
  // A result that is an argument which was written to has been seen as that.
  if (call.roles->leaves_unwritten || call.accesses.writes(tensor)) {
    return;
  }
  const auto tag = describe(call.name, call.overload, -1, tensor);
  const auto added = call.accesses.add(tensor, OPENREG_SANITIZER_WRITE, tag);
  if (call.roles->movement == Roles::Movement::kConcatenation) {
    see_concatenation(call, added, tensor);
  }
}

} // namespace openreg
