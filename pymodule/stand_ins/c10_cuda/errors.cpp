// c10/cuda/CUDAException.h and CUDAMiscFunctions.h: errors of the CUDA runtime as exceptions.

#include <c10/cuda/CUDAException.h>
#include <c10/util/env.h>
#include <torch/version.h>

#include <string>

namespace c10::cuda {

namespace {

constexpr const char *kAsynchronous =
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the "
    "stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1";

// Errors of work that was submitted earlier.
bool is_asynchronous(cudaError_t error) {
  return error == cudaErrorIllegalAddress || error == cudaErrorAssert ||
         error == cudaErrorIllegalInstruction || error == cudaErrorMisalignedAddress ||
         error == cudaErrorLaunchFailure;
}

// CUDA's message, and openreg's sentence about this failure if there is one.
std::string describe(cudaError_t error) {
  auto text = std::string("CUDA error: ") + cudaGetErrorString(error) + get_cuda_error_help(error);
  if (is_asynchronous(error)) {
    text += get_cuda_check_suffix();
  }
  text += '\n';
  return text + openreg_cudart_sentence(error);
}

} // namespace

std::string get_cuda_error_help(cudaError_t error) noexcept {
  if (error == cudaErrorInvalidDevice) {
    return "\nGPU device may be out of range, do you have enough GPUs?";
  }
  return std::string("\nSearch for `") + cudaGetErrorName(error) +
         "' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more "
         "information.";
}

const char *get_cuda_check_suffix() noexcept {
  static const bool is_blocking = c10::utils::check_env("CUDA_LAUNCH_BLOCKING") == true;
  return is_blocking ? "" : kAsynchronous;
}

// For other errors PyTorch recommends CUDA_LOG_FILE, a variable of NVIDIA's driver. Here the
// message has openreg's sentence instead.
C10_CUDA_API const char *get_cuda_async_error_suffix(cudaError_t error) noexcept {
  return is_asynchronous(error) ? get_cuda_check_suffix() : "";
}

std::mutex *getFreeMutex() {
  static auto *const mutex = new std::mutex(); // never destroyed: others may use it at exit
  return mutex;
}

#if TORCH_VERSION_MINOR >= 14
// Captures the driver's log between construction and use. There is no driver.
CUDAErrorLogCapture::CUDAErrorLogCapture() noexcept = default;

std::string CUDAErrorLogCapture::get_error_log_suffix() noexcept {
  return "";
}
#endif

// The device-side assertions that `include_device_assertions` is about never fail: kernels of CUDA
// do not run.
void c10_cuda_check_implementation(const int32_t err, const char *filename,
                                   const char *function_name, const uint32_t line_number,
                                   [[maybe_unused]] const bool include_device_assertions
#if TORCH_VERSION_MINOR >= 14
                                   ,
                                   [[maybe_unused]] CUDAErrorLogCapture *error_log
#endif
) {
  const auto error = static_cast<cudaError_t>(err);
  if (error == cudaSuccess) {
    return;
  }
  (void)cudaGetLastError(); // the exception reports it
  throw c10::AcceleratorError({function_name, filename, line_number}, err, describe(error));
}

} // namespace c10::cuda
