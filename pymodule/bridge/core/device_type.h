// The devices' PyTorch device type, and the dispatch keys that follow from it.
//
// With OPENREG_DEVICE_TYPE=cuda the devices are PyTorch's "cuda" (CUDA mode), else PrivateUse1,
// named "openreg". The variable is read once, when the extension is loaded, before anything is
// registered. torch_openreg rejects other values before it loads the extension.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DispatchKey.h>

namespace openreg {

struct DeviceKeys {
  explicit DeviceKeys(c10::DeviceType type);

  // The keys of tensors on a device, by layout.
  c10::DispatchKey dense, sparse, sparse_csr, quantized, nested;
  // The keys of kernels that run before the device's kernels.
  c10::DispatchKey autograd, autocast;
  c10::BackendComponent component; // the backend component of all these keys
};

c10::DeviceType choose_device_type();

// Inline variables: initialized before the variables of files that include this header.
inline const c10::DeviceType kDeviceType = choose_device_type();
inline const DeviceKeys kDeviceKeys(kDeviceType);

inline bool in_cuda_mode() {
  return kDeviceType == c10::DeviceType::CUDA;
}
// The platform's name for messages.
inline const char *platform_name() {
  return in_cuda_mode() ? "CUDA" : "openreg";
}

} // namespace openreg
