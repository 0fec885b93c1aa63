// Direct access to a TensorImpl's protected sizes, strides and offset. TensorImpl's own accessors
// first check whether a subclass overrides them, and every launch compares these fields.
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
