// c10/cuda/CUDADeviceAssertionHost.h: assertions in kernels. They never fail, because kernels of
// CUDA do not run here; so launches are not recorded.

#include <c10/cuda/CUDADeviceAssertionHost.h>
#include <c10/util/env.h>

namespace c10::cuda {

CUDAKernelLaunchRegistry::CUDAKernelLaunchRegistry() = default;

bool CUDAKernelLaunchRegistry::check_env_for_enable_launch_stacktracing() const {
  return c10::utils::check_env("PYTORCH_CUDA_DSA_STACKTRACING") == true;
}

bool CUDAKernelLaunchRegistry::check_env_for_dsa_enabled() const {
  return c10::utils::check_env("PYTORCH_USE_CUDA_DSA") == true;
}

uint32_t CUDAKernelLaunchRegistry::insert(const char *, const char *, const uint32_t, const char *,
                                          const int32_t) {
  return 0;
}

std::pair<std::vector<DeviceAssertionsData>, std::vector<CUDAKernelLaunchInfo>>
CUDAKernelLaunchRegistry::snapshot() const {
  return {};
}

DeviceAssertionsData *CUDAKernelLaunchRegistry::get_uvm_assertions_ptr_for_current_device() {
  return nullptr;
}

CUDAKernelLaunchRegistry &CUDAKernelLaunchRegistry::get_singleton_ref() {
  static auto *const registry = new CUDAKernelLaunchRegistry();
  return *registry;
}

bool CUDAKernelLaunchRegistry::has_failed() const {
  return false;
}

std::string c10_retrieve_device_side_assertion_info() {
  return "";
}

} // namespace c10::cuda
