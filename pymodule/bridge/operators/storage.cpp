// Operators on a tensor's storage: resize_, the overloads of set_, record_stream, _lazy_clone, and
// the check whether one tensor's data can replace another's.

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <torch/library.h>

#include "compat/native_functions.h"
#include "core/registration.h"
#include "memory/allocation/lazy_clone.h"
#include "streams/inline_guard.h"
#include "tensor/device_tensor.h"
#include "tensor/known_values.h"

namespace openreg {

namespace {

// Sets a tensor's sizes and strides (contiguous if not given), and grows its storage if necessary.
void set_shape(c10::TensorImpl &impl, c10::IntArrayRef size, at::OptionalIntArrayRef stride) {
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
  auto &storage = *impl.unsafe_storage().unsafeGetStorageImpl();
  if (impl.numel() > 0 && bytes > storage.nbytes()) {
    resize_storage(storage, bytes);
  }
}

const at::Tensor &resize_(const at::Tensor &self, c10::IntArrayRef size,
                          std::optional<c10::MemoryFormat> memory_format) {
  at::detail::check_size_nonnegative(size);
  auto &impl = *self.unsafeGetTensorImpl();
  const auto old_bytes = static_cast<int64_t>(self.storage().nbytes());
  set_shape(impl, size, std::nullopt);
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != c10::MemoryFormat::Preserve, "Unsupported memory format",
                *memory_format);
    impl.empty_tensor_restride(*memory_format);
  }
  auto &context = at::globalContext();
  if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())
      [[unlikely]] {
    native::fill_resize_deterministic_(self, old_bytes);
  }
  return self;
}

at::Tensor &set_storage_offset(at::Tensor &self, at::Storage source, int64_t offset,
                               c10::IntArrayRef size, c10::IntArrayRef stride) {
  native::checkSetStorage(self, std::move(source), offset, size, stride);
  auto &impl = *self.unsafeGetTensorImpl();
  impl.set_storage_offset(offset);
  set_shape(impl, size, stride.data() != nullptr ? at::OptionalIntArrayRef(stride) : std::nullopt);
  return self;
}

at::Tensor &set_storage(at::Tensor &self, at::Storage source) {
  const auto elements = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage_offset(self, std::move(source), 0, {elements}, {});
}

at::Tensor &set_tensor(at::Tensor &self, const at::Tensor &source) {
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) {
    return self;
  }
  return set_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(),
                            source.strides());
}

at::Tensor &set_nothing(at::Tensor &self) {
  return set_storage_offset(self, make_storage(allocate_block(self.device().index(), 0), 0), 0, {0},
                            {});
}

void record_stream(at::Tensor &self, c10::Stream stream) {
  device_allocator()->recordStream(self.storage().data_ptr(), stream);
}

at::Tensor lazily_cloned(const at::Tensor &self) {
  return at::detail::make_tensor<DeviceTensor>(lazy_clone(*self.storage().unsafeGetStorageImpl()),
                                               *self.unsafeGetTensorImpl());
}

// Module.to() calls this before it replaces a parameter's data in place. Strided tensors on the
// host and on devices are compatible.
bool has_compatible_shallow_copy_type(const at::Tensor &self, const at::Tensor &from) {
  const auto is_plain = [](const at::Tensor &tensor) {
    return tensor.key_set().has(c10::DispatchKey::Dense) && tensor.layout() == c10::kStrided;
  };
  return self.key_set() == from.key_set() || (is_plain(self) && is_plain(from));
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("resize_", &resize_);
  library.impl("set_", &set_nothing);
  library.impl("set_.source_Storage", &set_storage);
  library.impl("set_.source_Storage_storage_offset", &set_storage_offset);
  library.impl("set_.source_Tensor", &set_tensor);
  library.impl("record_stream", &record_stream);
  library.impl("_lazy_clone", &lazily_cloned);
  library.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
}

// A quantized tensor's integers have an ordinary storage.
OPENREG_LIBRARY_IMPL(aten, quantized, library) {
  library.impl("set_.source_Storage_storage_offset", &set_storage_offset);
}

// Conjugate and negative bits do not matter here. Resolving them first would record a copy's
// memory.
TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("record_stream", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("record_stream", torch::CppFunction::makeFallthrough());
}

// PyTorch's default is composite, so it must be overridden for autograd as well.
OPENREG_LIBRARY_IMPL(aten, autograd, library) {
  library.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
}

} // namespace openreg
