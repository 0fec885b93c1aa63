#include "stand_ins/c10_cuda/status.h"

#include <c10/util/Exception.h>

#include <string>

namespace openreg {

namespace {
constexpr int32_t kInvalidDevice = 101; // cudaErrorInvalidDevice
} // namespace

void raise(openreg_status status) {
  switch (status) {
  case OPENREG_BAD_FORK:
    TORCH_CHECK(false, "Cannot re-initialize CUDA in forked subprocess. To use CUDA with "
                       "multiprocessing, you must use the 'spawn' start method");
  case OPENREG_INVALID_DEVICE:
    throw c10::AcceleratorError(
        {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, kInvalidDevice,
        std::string("CUDA error: invalid device ordinal\n") + openreg_last_error());
  case OPENREG_OUT_OF_MEMORY:
    TORCH_CHECK_WITH(OutOfMemoryError, false, openreg_last_error());
  case OPENREG_INVALID_ARGUMENT:
    TORCH_CHECK_VALUE(false, openreg_last_error());
  default:
    TORCH_CHECK(false, openreg_last_error());
  }
}

c10::DeviceIndex check_device(int device) {
  int count = 0;
  check(openreg_device_count(&count));
  if (device < 0 || device >= count) {
    raise(openreg_fail(OPENREG_INVALID_DEVICE,
                       "openreg: invalid device ordinal %d: expected 0 to %d", device, count - 1));
  }
  return static_cast<c10::DeviceIndex>(device);
}

void refuse(const char *function, const char *reason) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "openreg: c10::cuda::CUDACachingAllocator::", function,
                              " is not supported: ", reason);
}

} // namespace openreg
