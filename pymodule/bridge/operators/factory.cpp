// Factories of uninitialized tensors, which all factory functions of PyTorch call, and ranges.

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/arange.h>
#include <c10/core/DefaultDtype.h>

#include "compat/native_functions.h"
#include "core/registration.h"
#include "tensor/device_tensor.h"
#include "core/unsupported.h"

namespace openreg {

namespace {

c10::DeviceIndex index_of(std::optional<c10::Device> device) {
  return device.has_value() && device->has_index()
             ? device->index()
             : static_cast<c10::DeviceIndex>(openreg_device_current());
}

void check_options(const char *operator_name, caffe2::TypeMeta dtype,
                   std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  check_dtype(dtype, operator_name);
  TORCH_CHECK_NOT_IMPLEMENTED(c10::layout_or_default(layout) == c10::kStrided,
                              "openreg: cannot allocate a tensor of layout ", *layout,
                              ": expected torch.strided");
  TORCH_CHECK(!c10::pinned_memory_or_default(pin_memory), "Only dense CPU tensors can be pinned");
}

// With deterministic algorithms, uninitialized memory is filled with NaN or the largest integer.
at::Tensor fill_if_deterministic(at::Tensor &&tensor) {
  auto &context = at::globalContext();
  if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())
      [[unlikely]] {
    native::fill_empty_deterministic_(tensor);
  }
  return std::move(tensor);
}

at::Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                 std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                 std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> memory_format) {
  const auto type = c10::scalarTypeToTypeMeta(c10::dtype_or_default(dtype));
  check_options("aten::empty", type, layout, pin_memory);
  at::detail::check_size_nonnegative(size);
  const auto bytes = at::detail::computeStorageNbytesContiguous(size, type.itemsize());
  auto tensor = make_tensor(make_storage(allocate_block(index_of(device), bytes), bytes), type);
  auto *impl = tensor.unsafeGetTensorImpl();
  if (size.size() != 1 || size[0] != 0) { // a new tensor has size [0]
    impl->set_sizes_contiguous(size);
  }
  if (memory_format.value_or(c10::MemoryFormat::Contiguous) != c10::MemoryFormat::Contiguous) {
    impl->empty_tensor_restride(*memory_format);
  }
  return fill_if_deterministic(std::move(tensor));
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                         std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  const auto type = c10::scalarTypeToTypeMeta(c10::dtype_or_default(dtype));
  check_options("aten::empty_strided", type, layout, pin_memory);
  at::detail::check_size_nonnegative(size);
  const auto bytes = at::detail::computeStorageNbytes(size, stride, type.itemsize());
  auto tensor = make_tensor(make_storage(allocate_block(index_of(device), bytes), bytes), type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  return fill_if_deterministic(std::move(tensor));
}

// Zeros without memory. Autograd makes them for gradients that are known to be zero.
at::Tensor efficient_zero_tensor(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                                 std::optional<c10::Layout> layout,
                                 std::optional<c10::Device> device,
                                 std::optional<bool> pin_memory) {
  const auto type = c10::dtype_or_default(dtype);
  check_options("aten::_efficientzerotensor", c10::scalarTypeToTypeMeta(type), layout, pin_memory);
  native::ZeroTensorAllocator allocator(c10::Device(kDeviceType, index_of(device)));
  return at::detail::empty_generic(
      size, &allocator, c10::DispatchKeySet({kDeviceKeys.dense, c10::DispatchKey::ZeroTensor}),
      type, std::nullopt);
}

// ---- ranges -------------------------------------------------------------------------------------

at::ScalarType dtype_of_range(const at::Scalar &start, const at::Scalar &end,
                              const at::Scalar &step) {
  const bool counts = start.isIntegral(true) && end.isIntegral(true) && step.isIntegral(true);
  return counts ? at::kLong : c10::get_default_dtype_as_scalartype();
}

// PyTorch's own kernel makes an empty tensor and resizes it in the kernel, which could not be
// queued.
at::Tensor arange(const at::Scalar &start, const at::Scalar &end, const at::Scalar &step,
                  std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                  std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  const auto type = dtype.value_or(dtype_of_range(start, end, step));
  const auto size = type == at::kLong ? native::compute_arange_size<int64_t>(start, end, step)
                                      : native::compute_arange_size<double>(start, end, step);
  auto range = empty({size}, type, layout, device, pin_memory, std::nullopt);
  return at::arange_out(range, start, end, step);
}

at::Tensor arange_to(const at::Scalar &end, std::optional<c10::ScalarType> dtype,
                     std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                     std::optional<bool> pin_memory) {
  return arange(0, end, 1, dtype, layout, device, pin_memory);
}

at::Tensor arange_from(const at::Scalar &start, const at::Scalar &end,
                       std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                       std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  return arange(start, end, 1, dtype, layout, device, pin_memory);
}

} // namespace

OPENREG_LIBRARY_IMPL(aten, dense, library) {
  library.impl("arange", &arange_to);
  library.impl("arange.start", &arange_from);
  library.impl("arange.start_step", &arange);
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_efficientzerotensor", &efficient_zero_tensor);
}

} // namespace openreg
