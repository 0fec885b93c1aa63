// Replaces the tensors within an argument of an operator.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>

namespace openreg {

// Returns the value with replace(tensor) in the place of each tensor: of a tensor itself, and of
// the tensors in a list. Other values are returned as they are.
template <class Replace> c10::IValue map_tensors(const c10::IValue &value, Replace replace) {
  if (value.isTensor()) {
    return replace(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const auto &tensor : value.toTensorVector()) {
      list.push_back(replace(tensor));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto &tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor.has_value() ? std::optional<at::Tensor>(replace(*tensor))
                                        : std::nullopt);
    }
    return list;
  }
  return value;
}

} // namespace openreg
