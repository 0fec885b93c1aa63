// Host code as libraries compile it: one use of each of PyTorch's CUDA headers that they include.

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <pybind11/stl.h>
#include <torch/csrc/cuda/memory_snapshot.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/cuda.h>

namespace {

using Numbers = std::vector<int64_t>;

int64_t number_of(const c10::cuda::CUDAStream &stream) {
  return reinterpret_cast<int64_t>(stream.stream());
}

Numbers counts() {
  int count = 0;
  C10_CUDA_CHECK(cudaGetDeviceCount(&count));
  return {count, c10::cuda::device_count(), static_cast<int64_t>(torch::cuda::device_count()),
          torch::cuda::is_available()};
}

int64_t version() {
  static_assert(CUDA_VERSION == CUDART_VERSION);
  int linked = 0;
  C10_CUDA_CHECK(cudaRuntimeGetVersion(&linked));
  return linked == CUDART_VERSION ? CUDART_VERSION : -1;
}

Numbers devices_in_guards(c10::DeviceIndex device) {
  Numbers devices;
  {
    const c10::cuda::CUDAGuard guard(device);
    devices.push_back(c10::cuda::current_device());
    const c10::cuda::OptionalCUDAGuard other(static_cast<c10::DeviceIndex>(0));
    devices.push_back(c10::cuda::current_device());
  }
  devices.push_back(c10::cuda::current_device());
  return devices;
}

// The current streams before, inside and behind a guard, and the guard's stream.
Numbers streams_in_guards() {
  const auto stream = at::cuda::getStreamFromPool(/*isHighPriority=*/true);
  Numbers streams{number_of(at::cuda::getCurrentCUDAStream())};
  {
    const c10::cuda::CUDAStreamGuard guard(stream);
    streams.push_back(number_of(at::cuda::getCurrentCUDAStream()));
  }
  streams.push_back(number_of(at::cuda::getCurrentCUDAStream()));
  streams.push_back(number_of(stream));
  return streams;
}

// Lets the current stream wait for the stream, and says whether the stream was done before.
bool wait_for(uintptr_t stream) {
  at::cuda::CUDAEvent event(cudaEventDisableTiming);
  event.record(at::cuda::getStreamFromExternal(reinterpret_cast<cudaStream_t>(stream),
                                               c10::cuda::current_device()));
  event.block(at::cuda::getCurrentCUDAStream());
  return event.query();
}

void fill(const at::Tensor &tensor, int value) {
  C10_CUDA_CHECK(
      cudaMemsetAsync(tensor.data_ptr(), value, tensor.nbytes(), at::cuda::getCurrentCUDAStream()));
}

int64_t allocated_by(size_t bytes) {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  const auto allocated = [] {
    const auto stats = allocator::getDeviceStats(c10::cuda::current_device());
    return stats.allocated_bytes[0].current;
  };
  const auto before = allocated();
  void *const memory = allocator::raw_alloc(bytes);
  const auto during = allocated();
  allocator::raw_delete(memory);
  return during - before;
}

void record_history(bool on) {
  cudaProfilerStart();
  torch::cuda::_record_memory_history(on ? std::optional<std::string>("all") : std::nullopt);
  cudaProfilerStop();
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("counts", &counts);
  module.def("version", &version);
  module.def("devices_in_guards", &devices_in_guards);
  module.def("streams_in_guards", &streams_in_guards);
  module.def("wait_for", &wait_for);
  module.def("fill", &fill);
  module.def("allocated_by", &allocated_by);
  module.def("record_history", &record_history);
}
