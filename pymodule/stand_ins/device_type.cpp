// The stand-in libraries contain bridge/core/status.cpp, which raises the bridge's exceptions. In
// them the devices are always PyTorch's "cuda".

#include "bridge/core/device_type.h"

#include <c10/core/TensorOptions.h>

namespace openreg {

c10::DeviceType choose_device_type() {
  return c10::DeviceType::CUDA;
}

// The other keys are not used here.
DeviceKeys::DeviceKeys(c10::DeviceType type)
    : dense(c10::computeDispatchKey(std::nullopt, c10::kStrided, type)) {}

} // namespace openreg
