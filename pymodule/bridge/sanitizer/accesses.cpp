#include "sanitizer/accesses.h"

namespace openreg {

namespace {

uint64_t address_of(const at::Tensor &tensor) {
  const auto *impl = tensor.unsafeGetTensorImpl();
  return reinterpret_cast<uint64_t>(impl->unsafe_storage().data()) +
         static_cast<uint64_t>(impl->storage_offset()) * impl->itemsize();
}

} // namespace

size_t Accesses::add(const at::Tensor &tensor, unsigned mode, uint64_t tag,
                     std::optional<at::IntArrayRef> sizes) {
  const auto *impl = tensor.unsafeGetTensorImpl();
  const auto element = static_cast<int64_t>(impl->itemsize());
  const auto shape = sizes.value_or(impl->sizes());
  const auto missing = shape.size() - impl->sizes().size();
  const auto first = sizes_and_strides_.size();
  sizes_and_strides_.insert(sizes_and_strides_.end(), shape.begin(), shape.end());
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool repeats = i < missing || impl->sizes()[i - missing] != shape[i];
    sizes_and_strides_.push_back(repeats ? 0 : impl->strides()[i - missing] * element);
  }
  return push(address_of(tensor), impl->itemsize(), shape.size(), first, mode, tag);
}

size_t Accesses::add(uint64_t address, size_t bytes, unsigned mode, uint64_t tag) {
  const auto first = sizes_and_strides_.size();
  sizes_and_strides_.insert(sizes_and_strides_.end(), {static_cast<int64_t>(bytes), 1});
  return push(address, 1, 1, first, mode, tag);
}

size_t Accesses::add_rows(uint64_t address, size_t bytes, size_t rows, size_t pitch, unsigned mode,
                          uint64_t tag) {
  const auto first = sizes_and_strides_.size();
  sizes_and_strides_.insert(
      sizes_and_strides_.end(),
      {static_cast<int64_t>(rows), static_cast<int64_t>(bytes), static_cast<int64_t>(pitch), 1});
  return push(address, 1, 2, first, mode, tag);
}

size_t Accesses::add_part(size_t whole, size_t dim, int64_t start, int64_t size) {
  const auto access = accesses_[whole];
  const auto dims = static_cast<size_t>(access.region.dims);
  const auto from = offset_of(whole), first = sizes_and_strides_.size();
  for (size_t i = 0; i < 2 * dims; ++i) {
    sizes_and_strides_.push_back(sizes_and_strides_[from + i]);
  }
  sizes_and_strides_[first + dim] = size;
  const auto offset = start * sizes_and_strides_[first + dims + dim];
  return push(access.region.address + static_cast<uint64_t>(offset), access.region.element_bytes,
              dims, first, access.mode, access.tag);
}

void Accesses::move(size_t written, size_t read) {
  accesses_[written].is_moved = true;
  accesses_[written].source = static_cast<uint32_t>(read);
}

bool Accesses::writes(const at::Tensor &tensor) const {
  const auto address = address_of(tensor);
  for (const auto &access : accesses_) {
    if ((access.mode & OPENREG_SANITIZER_WRITE) != 0 && access.region.address == address) {
      return true;
    }
  }
  return false;
}

const Accesses::Access *Accesses::data() {
  for (auto &access : accesses_) {
    const auto first = static_cast<size_t>(reinterpret_cast<uintptr_t>(access.region.sizes));
    access.region.sizes = sizes_and_strides_.data() + first;
    access.region.strides = access.region.sizes + access.region.dims;
  }
  return accesses_.data();
}

size_t Accesses::push(uint64_t address, size_t element, size_t dims, size_t first, unsigned mode,
                      uint64_t tag) {
  Access access{};
  access.region = {.address = address,
                   .element_bytes = element,
                   .dims = static_cast<int>(dims),
                   .sizes = reinterpret_cast<const int64_t *>(first),
                   .strides = nullptr};
  access.tag = tag;
  access.mode = mode;
  accesses_.push_back(access);
  return accesses_.size() - 1;
}

} // namespace openreg
