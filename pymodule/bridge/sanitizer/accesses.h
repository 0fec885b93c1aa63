// The memory accesses of one launch, in the form that the C layer expects.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "sanitizer/sanitizer.h"

namespace openreg {

class Accesses {
public:
  using Access = openreg_sanitizer_access;

  // Adds a tensor, broadcast to `sizes` if given. Returns the access's index.
  size_t add(const at::Tensor &tensor, unsigned mode, uint64_t tag,
             std::optional<at::IntArrayRef> sizes = std::nullopt);

  // Adds contiguous bytes, or rows of bytes. Returns the access's index.
  size_t add(uint64_t address, size_t bytes, unsigned mode, uint64_t tag);
  size_t add_rows(uint64_t address, size_t bytes, size_t rows, size_t pitch, unsigned mode,
                  uint64_t tag);

  // Adds a slice of access `whole`: `size` elements of a dimension, beginning with `start`.
  size_t add_part(size_t whole, size_t dim, int64_t start, int64_t size);

  // Removes access `i`. Only accesses that add_part() made of it may follow it.
  void drop(size_t i) { accesses_.erase(accesses_.begin() + static_cast<std::ptrdiff_t>(i)); }

  size_t size() const { return accesses_.size(); }
  const Access &operator[](size_t i) const { return accesses_[i]; } // without its sizes and strides
  int64_t size_of(size_t i, size_t dim) const { return sizes_and_strides_[offset_of(i) + dim]; }

  // Access `written` copies the bytes of access `read`. Both have the same sizes.
  void move(size_t written, size_t read);

  // Returns whether a write begins at the tensor's address.
  bool writes(const at::Tensor &tensor) const;

  // Returns the accesses for the C layer. The pointer is valid until an access is added.
  const Access *data();

private:
  // Until data() is called, `region.sizes` holds the offset of the sizes in `sizes_and_strides_`.
  size_t offset_of(size_t i) const {
    return static_cast<size_t>(reinterpret_cast<uintptr_t>(accesses_[i].region.sizes));
  }
  size_t push(uint64_t address, size_t element, size_t dims, size_t first, unsigned mode,
              uint64_t tag);

  std::vector<Access> accesses_;
  std::vector<int64_t> sizes_and_strides_; // for each access: its sizes, then its strides in bytes
};

} // namespace openreg
