// The accesses of one launch, as the layer sanitizer/ is told of them.
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

  // Returns its number. `sizes`: what the tensor is broadcast to, if that is not its own.
  size_t add(const at::Tensor &tensor, unsigned mode, uint64_t tag,
             std::optional<at::IntArrayRef> sizes = std::nullopt);

  // Bytes that follow each other.
  size_t add(uint64_t address, size_t bytes, unsigned mode, uint64_t tag);

  // A part of one that was added: `size` of a dimension, from `start` on.
  size_t add_part(size_t whole, size_t dim, int64_t start, int64_t size);

  // The last but those that were made parts of it.
  void drop(size_t i) { accesses_.erase(accesses_.begin() + static_cast<std::ptrdiff_t>(i)); }

  size_t size() const { return accesses_.size(); }
  const Access &operator[](size_t i) const { return accesses_[i]; } // but for its sizes
  int64_t size_of(size_t i, size_t dim) const { return numbers_[firsts_at(i) + dim]; }

  // What is written by one are the bytes that another reads, of the same sizes.
  void move(size_t written, size_t read);

  // Whether one that is written begins where the tensor does.
  bool writes(const at::Tensor &tensor) const;

  // For the layer, until something is added.
  const Access *data();

private:
  // Until all are there, `sizes` says where they begin in `numbers_`.
  size_t firsts_at(size_t i) const {
    return static_cast<size_t>(reinterpret_cast<uintptr_t>(accesses_[i].region.sizes));
  }
  size_t push(uint64_t address, size_t element, size_t dims, size_t first, unsigned mode,
              uint64_t tag);

  std::vector<Access> accesses_;
  std::vector<int64_t> numbers_; // of each: sizes, strides in bytes
};

} // namespace openreg
