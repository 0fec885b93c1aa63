#include "core/device_type.h"

#include <ATen/autocast_mode.h>
#include <c10/core/TensorOptions.h>

#include <cstdlib>
#include <string_view>

namespace openreg {

c10::DeviceType choose_device_type() {
  const char *const chosen = std::getenv("OPENREG_DEVICE_TYPE");
  return chosen != nullptr && std::string_view(chosen) == "cuda"
             ? c10::DeviceType::CUDA
             : c10::DeviceType::PrivateUse1; // PyTorch's device type for out-of-tree backends
}

DeviceKeys::DeviceKeys(c10::DeviceType type)
    : dense(c10::computeDispatchKey(std::nullopt, c10::kStrided, type)) {
  using c10::DispatchKey;
  component = c10::toBackendComponent(dense);
  const auto key_of = [&](DispatchKey functionality) {
    return c10::toRuntimePerBackendFunctionalityKey(functionality, component);
  };
  sparse = key_of(DispatchKey::Sparse);
  sparse_csr = key_of(DispatchKey::SparseCsr);
  quantized = key_of(DispatchKey::Quantized);
  nested = key_of(DispatchKey::NestedTensor);
  autograd = key_of(DispatchKey::AutogradFunctionality);
  autocast = at::autocast::get_autocast_dispatch_key_from_device_type(type);
}

} // namespace openreg
