// Writing by indices: all variants of index_put call _index_put_impl_. As on CUDA, indices may be
// on the host. Values may not, unless they are a single number.

#include <ATen/Context.h>
#include <ATen/Operators.h>
#include <ATen/ops/empty.h>

#include "core/registration.h"
#include "launch/policy.h"
#include "launch/typed.h"

namespace openreg {

namespace {

namespace ops = at::_ops;

using Indices = c10::List<std::optional<at::Tensor>>;

// Whether the indices are one mask on the device. Then a one-element value of any dimension counts
// as a number.
bool fills_by_mask(const at::Tensor &self, const Indices &indices) {
  int masks = 0;
  for (const std::optional<at::Tensor> &index : indices) {
    if (!index.has_value() || !index->defined()) {
      continue;
    }
    const auto type = index->scalar_type();
    if ((type != at::kBool && type != at::kByte) || index->device() != self.device()) {
      return false;
    }
    ++masks;
  }
  return masks == 1;
}

// Whether CUDA fills with the number, which the host knows. Otherwise it copies it to the device.
bool is_fill(const at::Tensor &self, const Indices &indices, const at::Tensor &values,
             bool accumulate) {
  return values.is_cpu() && values.numel() == 1 && !accumulate && fills_by_mask(self, indices);
}

[[noreturn]] void refuse_values(const at::Tensor &self, const at::Tensor &values, bool accumulate) {
  TORCH_CHECK(
      self.is_cpu() ||
          !(accumulate || (at::globalContext().deterministicAlgorithms() && values.numel() > 1)),
      "expected device ", self.device(), " but got device ", values.device(), " for value tensor");
  const bool on_host = self.is_cpu();
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at least two devices, ",
              on_host ? values.device() : self.device(), " and ",
              on_host ? self.device() : values.device(), "!");
}

at::Tensor &index_put_impl_(at::Tensor &self, const Indices &indices, const at::Tensor &values,
                            bool accumulate, bool unsafe) {
  if (values.device() == self.device()) [[likely]] {
    // CUDA adds the values of an element in their order. The CPU's kernel does so on one thread.
    std::optional<ThreadCount> in_order;
    if (accumulate && self.scalar_type() == at::kFloat) {
      in_order.emplace(1);
    }
    return typed<ops::_index_put_impl_>(self, indices, values, accumulate, unsafe);
  }
  if (is_fill(self, indices, values, accumulate)) {
    const auto number = at::empty(values.sizes(), values.options().device(self.device()));
    number.fill_(values.item());
    return ops::_index_put_impl_::call(self, indices, number, accumulate, unsafe);
  }
  if (values.dim() != 0) {
    refuse_values(self, values, accumulate);
  }
  return ops::_index_put_impl_::call(self, indices, values.to(self.device()), accumulate, unsafe);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  register_one<ops::_index_put_impl_>(library, &index_put_impl_);
}

} // namespace openreg
