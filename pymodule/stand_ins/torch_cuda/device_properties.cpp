// ATen/cuda/CUDAContextLight.h: properties of devices, and access between them.
#include <c10/core/Device.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include <vector>

// That header includes headers of NVIDIA's libraries, so the functions are declared here.
namespace at::cuda {

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int warp_size();
EXPORTED cudaDeviceProp *getCurrentDeviceProperties();
EXPORTED cudaDeviceProp *getDeviceProperties(c10::DeviceIndex device);
EXPORTED bool canDeviceAccessPeer(c10::DeviceIndex device, c10::DeviceIndex peer);

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
  const int index = device < 0 ? c10::cuda::current_device() : device;
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

} // namespace at::cuda
