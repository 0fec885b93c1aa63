// c10/cuda/PeerToPeerAccess.h: access of devices to each other's memory.

#include <c10/cuda/PeerToPeerAccess.h>

#include "bridge/core/status.h"
#include "stand_ins/c10_cuda/registered.h"

namespace c10::cuda {

namespace detail {
void init_p2p_access_cache(int64_t) {} // the C layers answer at once, so there is no cache
} // namespace detail

bool get_p2p_access(c10::DeviceIndex source_dev, c10::DeviceIndex dest_dev) {
  const auto source = openreg::device_index(source_dev);
  const auto destination = openreg::device_index(dest_dev);
  bool can_access = true; // a device has access to its own memory
  if (source != destination) {
    openreg::check(openreg_device_can_access_peer(source, destination, &can_access));
  }
  return can_access;
}

// The devices are connected by no NVLink fabric.
bool get_fabric_access(c10::DeviceIndex device) {
  (void)openreg::device_index(device);
  return false;
}

int get_fabric_clique_id(c10::DeviceIndex device) {
  (void)openreg::device_index(device);
  return kCliqueIdUnsupported;
}

std::string get_nvml_fabric_info(c10::DeviceIndex device) {
  (void)openreg::device_index(device);
  return "fabric info unsupported: openreg's devices are connected by no NVLink fabric";
}

} // namespace c10::cuda
