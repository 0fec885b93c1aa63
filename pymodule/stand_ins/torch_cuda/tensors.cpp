// ATen/cuda/EmptyTensor.h: tensors without values, made by PyTorch's operators.

#include <ATen/Functions.h>
#include <ATen/cuda/EmptyTensor.h>

namespace at::detail {

namespace {

TensorOptions on_device(TensorOptions options, std::optional<Device> device) {
  return options.device(device.value_or(Device(kCUDA)));
}

} // namespace

TensorBase empty_cuda(IntArrayRef size, ScalarType dtype, std::optional<Device> device,
                      std::optional<MemoryFormat> memory_format) {
  return at::empty(size, on_device(dtype, device), memory_format);
}

TensorBase empty_cuda(IntArrayRef size, std::optional<ScalarType> dtype,
                      std::optional<Layout> layout, std::optional<Device> device,
                      std::optional<bool> pin_memory, std::optional<MemoryFormat> memory_format) {
  return at::empty(size, dtype, layout, device.value_or(Device(kCUDA)), pin_memory, memory_format);
}

TensorBase empty_cuda(IntArrayRef size, const TensorOptions &options) {
  return at::empty(size, on_device(options, options.device_opt()));
}

TensorBase empty_strided_cuda(IntArrayRef size, IntArrayRef stride, ScalarType dtype,
                              std::optional<Device> device) {
  return at::empty_strided(size, stride, on_device(dtype, device));
}

TensorBase empty_strided_cuda(IntArrayRef size, IntArrayRef stride, std::optional<ScalarType> dtype,
                              std::optional<Layout> layout, std::optional<Device> device,
                              std::optional<bool> pin_memory) {
  return at::empty_strided(size, stride, dtype, layout, device.value_or(Device(kCUDA)), pin_memory);
}

TensorBase empty_strided_cuda(IntArrayRef size, IntArrayRef stride, const TensorOptions &options) {
  return at::empty_strided(size, stride, on_device(options, options.device_opt()));
}

} // namespace at::detail
