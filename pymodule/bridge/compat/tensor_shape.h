// What TensorImpl keeps for its subclasses, of any tensor: its own functions ask first whether a
// subclass computes it in another way, and every launch compares it.
#pragma once

#include <c10/core/TensorImpl.h>

namespace openreg {

struct TensorShape : c10::TensorImpl {
  static const c10::impl::SizesAndStrides &of(const c10::TensorImpl &tensor) {
    return tensor.*(&TensorShape::sizes_and_strides_);
  }
  static int64_t offset_of(const c10::TensorImpl &tensor) {
    return tensor.*(&TensorShape::storage_offset_);
  }
};

} // namespace openreg
