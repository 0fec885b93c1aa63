// ATen/cuda/CUDAContextLight.h and ATen/cuda/PeerToPeerAccess.h: properties of devices, access
// between them, and their allocator.
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/PeerToPeerAccess.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>

#include <vector>

#include "stand_ins/torch_cuda/host_functions.h"

namespace at::cuda {

// The properties live as long as the process. A negative device is the current one.
cudaDeviceProp *getDeviceProperties(c10::DeviceIndex device) {
  static auto *const properties = [] {
    auto *all = new std::vector<cudaDeviceProp>(
        static_cast<size_t>(c10::cuda::device_count_ensure_non_zero()));
    for (size_t i = 0; i < all->size(); ++i) {
      C10_CUDA_CHECK(cudaGetDeviceProperties(&(*all)[i], static_cast<int>(i)));
    }
    return all;
  }();
  const int index = openreg::device_or_current(device);
  TORCH_CHECK(static_cast<size_t>(index) < properties->size(), "device=", index,
              ", num_gpus=", properties->size());
  return &(*properties)[static_cast<size_t>(index)];
}

cudaDeviceProp *getCurrentDeviceProperties() {
  return getDeviceProperties(c10::cuda::current_device());
}

int warp_size() {
  return getCurrentDeviceProperties()->warpSize;
}

bool canDeviceAccessPeer(c10::DeviceIndex device, c10::DeviceIndex peer) {
  int can_access = 0;
  C10_CUDA_CHECK(cudaDeviceCanAccessPeer(&can_access, device, peer));
  return can_access != 0;
}

bool get_p2p_access(c10::DeviceIndex source, c10::DeviceIndex destination) {
  return c10::cuda::get_p2p_access(source, destination);
}

bool get_fabric_access(c10::DeviceIndex) {
  return false; // fabric handles need NVIDIA's driver
}

c10::Allocator *getCUDADeviceAllocator() {
  return c10::cuda::CUDACachingAllocator::get();
}

} // namespace at::cuda
