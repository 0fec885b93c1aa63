// openreg's own operators, torch.ops.openreg.*. They show how a backend adds an operator that
// PyTorch does not have, and three ways to work with autograd:
//
//   custom_abs                 has no autograd kernel: a backward pass through it warns and gives
//                              no gradient
//   custom_abs_differentiable  has an autograd kernel with its own derivative
//   custom_abs_fallthrough     falls through autograd: its kernel calls differentiable operators,
//                              which autograd records
//
// A kernel that calls differentiable operators but must not be differentiated through them needs a
// guard, as in `absolute`. The two custom_autograd_fn_* operators return their argument and a view
// of it, where autograd must distinguish the result from the argument. Their backward halves the
// gradient to show that it ran.
//
// Their Meta kernels are in torch_openreg/openreg/_meta.py.

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/sgn.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "core/registration.h"

namespace openreg {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// ---- kernels ------------------------------------------------------------------------------------

Tensor custom_absolute(const Tensor &input) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return at::abs(input);
}

Tensor absolute_recorded(const Tensor &input) {
  return at::abs(input);
}

// ---- autograd of custom_abs_differentiable ------------------------------------------------------

Tensor call_differentiable(const Tensor &input) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("openreg::custom_abs_differentiable", "")
                             .typed<Tensor(const Tensor &)>();
  return op.call(input);
}

struct AbsFunction : torch::autograd::Function<AbsFunction> {
  static Variable forward(AutogradContext *context, const Variable &input) {
    context->save_for_backward({input});
    at::AutoDispatchBelowADInplaceOrView below_autograd; // otherwise this calls itself
    return call_differentiable(input);
  }

  // For complex z the derivative of |z| is z / |z|.
  static variable_list backward(AutogradContext *context, const variable_list &gradients) {
    return {gradients[0] * context->get_saved_variables()[0].sgn()};
  }
};

Tensor differentiable_autograd(const Tensor &input) {
  return AbsFunction::apply(input);
}

// ---- results that share the argument's memory ---------------------------------------------------

variable_list halved(const variable_list &gradients) {
  return {gradients[0] * 0.5};
}

struct ReturnsSelf : torch::autograd::Function<ReturnsSelf> {
  static Variable forward(AutogradContext *, const Variable &input) { return input; }
  static variable_list backward(AutogradContext *, const variable_list &gradients) {
    return halved(gradients);
  }
};

struct Aliasing : torch::autograd::Function<Aliasing> {
  static Variable forward(AutogradContext *, const Variable &input) {
    return input.view_symint(input.sym_sizes());
  }
  static variable_list backward(AutogradContext *, const variable_list &gradients) {
    return halved(gradients);
  }
};

Tensor returns_self(const Tensor &input) {
  return input;
}
Tensor returns_self_autograd(const Tensor &input) {
  return ReturnsSelf::apply(input);
}
Tensor aliasing(const Tensor &input) {
  return input.view_symint(input.sym_sizes());
}
Tensor aliasing_autograd(const Tensor &input) {
  return Aliasing::apply(input);
}

} // namespace

TORCH_LIBRARY(openreg, library) {
  library.def("custom_abs(Tensor input) -> Tensor");
  library.def("custom_abs_differentiable(Tensor input) -> Tensor");
  library.def("custom_abs_fallthrough(Tensor input) -> Tensor");
  library.def("custom_autograd_fn_returns_self(Tensor input) -> Tensor");
  library.def("custom_autograd_fn_aliasing(Tensor(a) input) -> Tensor(a)");
}

OPENREG_LIBRARY_IMPL(openreg, dense, library) {
  library.impl("custom_abs", &custom_absolute);
  library.impl("custom_abs_differentiable", &custom_absolute);
  library.impl("custom_abs_fallthrough", &absolute_recorded);
  library.impl("custom_autograd_fn_returns_self", &returns_self); // for inference mode
  library.impl("custom_autograd_fn_aliasing", &aliasing);
}

OPENREG_LIBRARY_IMPL(openreg, autograd, library) {
  library.impl("custom_abs_differentiable", &differentiable_autograd);
  library.impl("custom_abs_fallthrough", torch::CppFunction::makeFallthrough());
  library.impl("custom_autograd_fn_returns_self", &returns_self_autograd);
  library.impl("custom_autograd_fn_aliasing", &aliasing_autograd);
}

} // namespace openreg
