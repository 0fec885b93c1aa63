// c10/cuda/CUDAFunctions.h: the current device of each thread, which is that of the C layers.
//
// CUDA creates a context when a device is selected. To avoid that, PyTorch remembers a target
// device. The C layers create nothing then, so the target device is the current one.

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/impl/CUDATest.h>

#include <optional>

#include "bridge/core/status.h"
#include "stand_ins/c10_cuda/registered.h"

namespace c10::cuda {

DeviceIndex device_count() noexcept {
  int count = 0;
  if (openreg_device_count(&count) != OPENREG_OK) {
    try {
      TORCH_WARN_ONCE("CUDA initialization: ", openreg_last_error());
    } catch (...) { // a warning that is an error
    }
    return 0;
  }
  return static_cast<DeviceIndex>(count);
}

DeviceIndex device_count_ensure_non_zero() {
  int count = 0;
  openreg::check(openreg_device_count(&count));
  TORCH_CHECK(count > 0, "No CUDA GPUs are available");
  return static_cast<DeviceIndex>(count);
}

DeviceIndex current_device() {
  DeviceIndex device = 0;
  C10_CUDA_CHECK(GetDevice(&device));
  return device;
}

void set_device(DeviceIndex device, const bool force) {
  C10_CUDA_CHECK(SetDevice(device, force));
}

void device_synchronize() {
  openreg::registered_guard().synchronizeDevice(current_device());
}

// The state is that of CUDAFunctions.h, which belongs to C++ programs.
void warn_or_error_on_sync() {
  constexpr const char *sentence = "called a synchronizing CUDA operation";
  const auto mode = warning_state().get_sync_debug_mode();
  TORCH_CHECK(mode != SyncDebugMode::L_ERROR, sentence);
  if (mode == SyncDebugMode::L_WARN) {
    TORCH_WARN(sentence);
  }
}

cudaError_t GetDeviceCount(int *dev_count) {
  return cudaGetDeviceCount(dev_count);
}

cudaError_t GetDevice(DeviceIndex *device) {
  int current = 0;
  const auto error = cudaGetDevice(&current);
  if (error == cudaSuccess) {
    *device = static_cast<DeviceIndex>(current);
  }
  return error;
}

cudaError_t SetDevice(DeviceIndex device, const bool force) {
  return !force && device == openreg_device_current() ? cudaSuccess : cudaSetDevice(device);
}

// Creates no context, unlike cudaSetDevice.
cudaError_t MaybeSetDevice(DeviceIndex device) {
  return openreg_device_set_current(device) == OPENREG_OK ? cudaSuccess : cudaSetDevice(device);
}

DeviceIndex ExchangeDevice(DeviceIndex device) {
  const auto previous = current_device();
  if (device != previous) {
    C10_CUDA_CHECK(cudaSetDevice(device));
  }
  return previous;
}

DeviceIndex MaybeExchangeDevice(DeviceIndex device) {
  const auto previous = current_device();
  if (device != previous) {
    C10_CUDA_CHECK(MaybeSetDevice(device));
  }
  return previous;
}

void SetTargetDevice() {}

bool hasPrimaryContext(DeviceIndex device_index) {
  return openreg_device_has_context(openreg::resolve_device(device_index));
}

std::optional<DeviceIndex> getDeviceIndexWithPrimaryContext() {
  if (hasPrimaryContext(current_device())) {
    return current_device();
  }
  for (DeviceIndex device = 0; device < device_count(); ++device) {
    if (hasPrimaryContext(device)) {
      return device;
    }
  }
  return std::nullopt;
}

namespace _internal {
// libtorch_cuda passes a function that asks NVIDIA's driver. hasPrimaryContext does not need it.
C10_CUDA_API void setHasPrimaryContext(bool (*)(DeviceIndex)) {}
} // namespace _internal

namespace impl {
int c10_cuda_test() {
  return device_count();
}
} // namespace impl

} // namespace c10::cuda
