// The pybind11 holder of torch.distributed's process groups.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/utils/pybind.h>

#include <utility>

#include "streams/inline_guard.h"

namespace openreg {

// Releases the last reference without the GIL, as PyTorch does for its own groups: the destructor
// joins the group's threads, which may need the GIL.
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

// `true`: a holder can be made from a raw pointer, because the reference count is in the object.
PYBIND11_DECLARE_HOLDER_TYPE(T, openreg::HeldWithoutGil<T>, true)
