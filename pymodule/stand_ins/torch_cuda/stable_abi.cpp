// The functions for CUDA in PyTorch's stable interface, which is written in C. Extensions that are
// compiled for several releases of PyTorch call them, such as torchvision since 0.29.
//
//   torch/csrc/inductor/aoti_torch/c/shim.h    streams, guards, memory
//   torch/csrc/stable/c/shim.h                 streams, errors

#define USE_CUDA // otherwise the headers do not declare them

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>
#include <torch/csrc/stable/c/shim.h>

#include <cstdlib>
#include <cstring>
#include <exception>

namespace {

cudaStream_t stream_of(void *stream) {
  return static_cast<cudaStream_t>(stream);
}

c10::cuda::CUDAStream external(void *stream, int32_t device) {
  return c10::cuda::getStreamFromExternal(stream_of(stream), static_cast<c10::DeviceIndex>(device));
}

c10::cuda::CUDAGuard *guard_of(CUDAGuardHandle handle) {
  return reinterpret_cast<c10::cuda::CUDAGuard *>(handle);
}

c10::cuda::CUDAStreamGuard *guard_of(CUDAStreamGuardHandle handle) {
  return reinterpret_cast<c10::cuda::CUDAStreamGuard *>(handle);
}

} // namespace

// ---- guards -------------------------------------------------------------------------------------

AOTITorchError aoti_torch_create_cuda_guard(int32_t device_index, CUDAGuardHandle *ret_guard) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    *ret_guard = reinterpret_cast<CUDAGuardHandle>(
        new c10::cuda::CUDAGuard(static_cast<c10::DeviceIndex>(device_index)));
  });
}

AOTITorchError aoti_torch_delete_cuda_guard(CUDAGuardHandle guard) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({ delete guard_of(guard); });
}

AOTITorchError aoti_torch_cuda_guard_set_index(CUDAGuardHandle guard, int32_t device_index) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE(
      { guard_of(guard)->set_index(static_cast<c10::DeviceIndex>(device_index)); });
}

AOTITorchError aoti_torch_create_cuda_stream_guard(void *stream, int32_t device_index,
                                                   CUDAStreamGuardHandle *ret_guard) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    *ret_guard = reinterpret_cast<CUDAStreamGuardHandle>(
        new c10::cuda::CUDAStreamGuard(external(stream, device_index)));
  });
}

AOTITorchError aoti_torch_delete_cuda_stream_guard(CUDAStreamGuardHandle guard) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({ delete guard_of(guard); });
}

// ---- streams ------------------------------------------------------------------------------------

AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index, void **ret_stream) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    *ret_stream =
        c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device_index)).stream();
  });
}

AOTITorchError torch_set_current_cuda_stream(void *stream, int32_t device_index) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE(
      { c10::cuda::setCurrentCUDAStream(external(stream, device_index)); });
}

AOTITorchError torch_get_cuda_stream_from_pool(bool isHighPriority, int32_t device_index,
                                               void **ret_stream) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    *ret_stream =
        c10::cuda::getStreamFromPool(isHighPriority, static_cast<c10::DeviceIndex>(device_index))
            .stream();
  });
}

AOTITorchError torch_cuda_stream_synchronize(void *stream, int32_t device_index) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({ external(stream, device_index).synchronize(); });
}

// ---- memory -------------------------------------------------------------------------------------

AOTITorchError aoti_torch_cuda_caching_allocator_raw_alloc(uint64_t nbytes, void **ret_ptr) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE(
      { *ret_ptr = c10::cuda::CUDACachingAllocator::raw_alloc(nbytes); });
}

AOTITorchError aoti_torch_cuda_caching_allocator_raw_delete(void *ptr) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({ c10::cuda::CUDACachingAllocator::raw_delete(ptr); });
}

// ---- errors -------------------------------------------------------------------------------------

// Returns success and no message if `err` is cudaSuccess. The caller frees the message.
AOTITorchError torch_c10_cuda_check_msg(int32_t err, const char *filename,
                                        const char *function_name, uint32_t line_number,
                                        bool include_device_assertions, char **error_msg) {
  *error_msg = nullptr;
  try {
    c10::cuda::c10_cuda_check_implementation(err, filename, function_name, line_number,
                                             include_device_assertions);
    return AOTI_TORCH_SUCCESS;
  } catch (const c10::Error &error) {
    *error_msg = strdup(error.what_without_backtrace());
  } catch (const std::exception &error) {
    *error_msg = strdup(error.what());
  }
  return AOTI_TORCH_FAILURE;
}

void torch_c10_cuda_free_error_msg(char *error_msg) {
  std::free(error_msg);
}
