#include "stand_ins/torch_cuda/host_functions.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDAFunctions.h>

namespace openreg {

const HostFunctions &host_functions() {
  const auto *const functions = dynamic_cast<const HostFunctions *>(&at::detail::getCUDAHooks());
  TORCH_CHECK(functions != nullptr,
              "openreg: functions of at::cuda need CUDA mode: set OPENREG_DEVICE_TYPE=cuda before "
              "the program starts, or use `openreg run`");
  return *functions;
}

c10::DeviceIndex device_or_current(c10::DeviceIndex device) {
  return device < 0 ? c10::cuda::current_device() : device;
}

} // namespace openreg
