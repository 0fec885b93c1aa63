#include "core/status.h"

#include <c10/util/Exception.h>

#include <string>

#include "core/device_type.h"

namespace openreg {

namespace {

// The numbers of CUDA's corresponding errors.
constexpr int32_t kInvalidDevice = 101;
constexpr int32_t kLaunchFailure = 719;
constexpr int32_t kCaptureUnsupported =
    900; // the other capture errors follow in the order of openreg_status

bool has_devices() {
  int count = 0;
  return openreg_device_count(&count) != OPENREG_OK || count > 0;
}

[[noreturn]] void raise_accelerator_error(int32_t code, const std::string &sentence) {
  throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, code,
                              sentence);
}

} // namespace

void raise(openreg_status status) {
  switch (status) {
  case OPENREG_BAD_FORK:
    TORCH_CHECK(false, "Cannot re-initialize ", platform_name(), " in forked subprocess. To use ",
                platform_name(), " with multiprocessing, you must use the 'spawn' start method");
  case OPENREG_INVALID_DEVICE:
    TORCH_CHECK(has_devices(), "No ", platform_name(), " GPUs are available");
    raise_accelerator_error(kInvalidDevice, platform_name() +
                                                std::string(" error: invalid device ordinal\n") +
                                                openreg_last_error());
  case OPENREG_CAPTURE_UNSUPPORTED:
  case OPENREG_CAPTURE_INVALIDATED:
  case OPENREG_CAPTURE_MERGE:
  case OPENREG_CAPTURE_UNMATCHED:
  case OPENREG_CAPTURE_UNJOINED:
  case OPENREG_CAPTURE_ISOLATION:
  case OPENREG_CAPTURE_IMPLICIT:
  case OPENREG_CAPTURED_EVENT:
  case OPENREG_CAPTURE_WRONG_THREAD:
    raise_accelerator_error(kCaptureUnsupported + status - OPENREG_CAPTURE_UNSUPPORTED,
                            platform_name() + std::string(" error: ") + openreg_last_error());
  case OPENREG_LAUNCH_FAILURE:
    raise_accelerator_error(kLaunchFailure, openreg_last_error());
  case OPENREG_COMMUNICATION_FAILURE:
    TORCH_CHECK_WITH(DistBackendError, false, openreg_last_error());
  case OPENREG_OUT_OF_MEMORY:
    TORCH_CHECK_WITH(OutOfMemoryError, false, openreg_last_error());
  case OPENREG_INVALID_ARGUMENT:
    TORCH_CHECK_VALUE(false, openreg_last_error());
  default:
    TORCH_CHECK(false, openreg_last_error());
  }
}

c10::DeviceIndex device_index(int device) {
  int count = 0;
  check(openreg_device_count(&count));
  if (device < 0 || device >= count) {
    raise(openreg_fail(OPENREG_INVALID_DEVICE,
                       "openreg: invalid device ordinal %d: expected 0 to %d", device, count - 1));
  }
  return static_cast<c10::DeviceIndex>(device);
}

} // namespace openreg
