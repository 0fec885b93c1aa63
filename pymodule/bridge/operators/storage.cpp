// Which storage a tensor has, and how large it is: resize_ and the forms of set_.

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include "../device_tensor.h"

namespace openreg {

namespace {

// Gives a tensor sizes (and strides; contiguous without), and its storage room for them.
void set_shape(c10::TensorImpl& impl, c10::IntArrayRef size, at::OptionalIntArrayRef stride) {
  if (impl.sizes() == size && (!stride.has_value() || impl.strides() == *stride)) {
    return;
  }
  const auto itemsize = impl.dtype().itemsize();
  const auto offset = static_cast<size_t>(impl.storage_offset());
  size_t bytes = 0;
  if (stride.has_value()) {
    impl.set_sizes_and_strides(size, *stride);
    bytes = at::detail::computeStorageNbytes(size, *stride, itemsize, offset);
  } else {
    impl.set_sizes_contiguous(size);
    bytes = at::detail::computeStorageNbytesContiguous(size, itemsize, offset);
  }
  auto& storage = *impl.unsafe_storage().unsafeGetStorageImpl();
  if (impl.numel() > 0 && bytes > storage.nbytes()) {
    resize_storage(storage, bytes);
  }
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size,
                          std::optional<c10::MemoryFormat> memory_format) {
  at::detail::check_size_nonnegative(size);
  auto& impl = *self.unsafeGetTensorImpl();
  set_shape(impl, size, std::nullopt);
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != c10::MemoryFormat::Preserve, "Unsupported memory format",
                *memory_format);
    impl.empty_tensor_restride(*memory_format);
  }
  return self;
}

at::Tensor& set_storage_offset(at::Tensor& self, at::Storage source, int64_t offset,
                               c10::IntArrayRef size, c10::IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  auto& impl = *self.unsafeGetTensorImpl();
  impl.set_storage_offset(offset);
  set_shape(impl, size, stride.data() != nullptr ? at::OptionalIntArrayRef(stride) : std::nullopt);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const auto elements =
      static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage_offset(self, std::move(source), 0, {elements}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) {
    return self;
  }
  return set_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(),
                            source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  return set_storage_offset(
      self, make_storage(allocate_block(self.device().index(), 0), 0), 0, {0}, {});
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("resize_", &resize_);
  library.impl("set_", &set_nothing);
  library.impl("set_.source_Storage", &set_storage);
  library.impl("set_.source_Storage_storage_offset", &set_storage_offset);
  library.impl("set_.source_Tensor", &set_tensor);
}

} // namespace openreg
