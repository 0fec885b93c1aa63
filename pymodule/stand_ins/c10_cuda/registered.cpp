#include "stand_ins/c10_cuda/registered.h"

#include <c10/util/Exception.h>

#include "bridge/core/status.h"

namespace openreg {

namespace {

void require_registration() {
  TORCH_CHECK(c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA),
              "openreg: CUDA memory and CUDA streams need CUDA mode: set OPENREG_DEVICE_TYPE=cuda "
              "and import torch before this call");
}

} // namespace

const c10::impl::DeviceGuardImplInterface &registered_guard() {
  require_registration();
  return *c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA);
}

c10::DeviceAllocator &registered_allocator() {
  require_registration();
  return *c10::getDeviceAllocator(c10::DeviceType::CUDA);
}

AllocatorHistory &registered_history() {
  auto *const history = dynamic_cast<AllocatorHistory *>(&registered_allocator());
  TORCH_CHECK(history != nullptr, "openreg: the CUDA allocator of this process is not openreg's");
  return *history;
}

c10::DeviceIndex resolve_device(c10::DeviceIndex device) {
  return device == -1 ? static_cast<c10::DeviceIndex>(openreg_device_current())
                      : device_index(device);
}

} // namespace openreg
