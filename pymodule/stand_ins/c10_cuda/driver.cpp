// c10/cuda/driver_api.h: NVIDIA's driver, which does not exist here. The header includes headers of
// the driver and of NVML, so the struct is declared without its members.

#include <c10/cuda/CUDAMacros.h>
#include <c10/util/Exception.h>

namespace c10::cuda {

struct C10_CUDA_API DriverAPI {
  static DriverAPI *get();
  static void *get_nvml_handle();
};

namespace {
[[noreturn]] void refuse(const char *function) {
  TORCH_CHECK(false, "openreg: c10::cuda::DriverAPI::", function,
              " is not supported: there is no CUDA driver, and so no functions of it");
}
} // namespace

DriverAPI *DriverAPI::get() {
  refuse("get");
}

void *DriverAPI::get_nvml_handle() {
  refuse("get_nvml_handle");
}

} // namespace c10::cuda
