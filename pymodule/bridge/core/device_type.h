// Which device type of PyTorch the devices have, and the dispatch keys that follow from it. Read
// once, when the extension is loaded: everything else asks here, and nothing is registered before.
//
// With OPENREG_DEVICE_TYPE=cuda they are PyTorch's "cuda" (CUDA mode), else a type of their own.
// What else the variable may be, torch_openreg refuses before it loads the extension.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DispatchKey.h>

namespace openreg {

struct DeviceKeys {
  explicit DeviceKeys(c10::DeviceType type);

  // Of tensors on a device, by how they are stored.
  c10::DispatchKey dense, sparse, sparse_csr, quantized, nested;
  // Of kernels that stand before those of the device.
  c10::DispatchKey autograd, autocast;
  c10::BackendComponent component; // what all of these have in common
};

c10::DeviceType choose_device_type();

// Variables of a header are initialized before those that a file defines after including it.
inline const c10::DeviceType kDeviceType = choose_device_type();
inline const DeviceKeys kDeviceKeys(kDeviceType);

inline bool in_cuda_mode() {
  return kDeviceType == c10::DeviceType::CUDA;
}
// As sentences name the devices' software.
inline const char *platform_name() {
  return in_cuda_mode() ? "CUDA" : "openreg";
}

} // namespace openreg
