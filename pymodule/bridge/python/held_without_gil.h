// How Python holds the groups of torch.distributed.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/utils/pybind.h>

#include <utility>

#include "streams/inline_guard.h"

namespace openreg {

// As PyTorch has Python hold its groups: the last reference goes without the GIL, for the threads
// of a group, which its end waits for, may want it.
template <class T> class HeldWithoutGil {
public:
  HeldWithoutGil() = default;
  explicit HeldWithoutGil(T *fresh) : held_(c10::intrusive_ptr<T>::unsafe_steal_from_new(fresh)) {}
  HeldWithoutGil(c10::intrusive_ptr<T> held) : held_(std::move(held)) {}
  HeldWithoutGil(const HeldWithoutGil &) = default;
  HeldWithoutGil(HeldWithoutGil &&) noexcept = default;
  HeldWithoutGil &operator=(const HeldWithoutGil &) = default;
  HeldWithoutGil &operator=(HeldWithoutGil &&) noexcept = default;
  ~HeldWithoutGil() {
    if (held_) {
      const WithoutGil no_gil;
      held_.reset();
    }
  }

  T *get() const { return held_.get(); }

private:
  c10::intrusive_ptr<T> held_;
};

} // namespace openreg

// PyTorch's casters see the pointer, which is all that such an object has.
PYBIND11_DECLARE_HOLDER_TYPE(T, openreg::HeldWithoutGil<T>, true)
