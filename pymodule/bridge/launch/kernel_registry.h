// How each operator is served: what torch.openreg.operators() shows.
#pragma once

#include <ATen/core/operator_name.h>

#include <map>
#include <string>

namespace openreg {

enum class Door { kTyped, kBoxed };

// Remembers through which door an operator enters. Called where its kernel is registered.
void note_door(const c10::OperatorName &name, Door door);

// Every operator that is registered now, "aten::add.Tensor", and one of
//   "native"     a kernel of openreg's own
//   "typed"      PyTorch's CPU kernel, launched by code made for this operator
//   "boxed"      PyTorch's CPU kernel, launched by its schema
//   "composite"  made of other operators
//   "refused"    not on this device: NotImplementedError
std::map<std::string, std::string> served_operators();

} // namespace openreg
