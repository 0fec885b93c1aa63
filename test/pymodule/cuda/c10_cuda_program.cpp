// A C++ extension as other projects write them: it uses PyTorch's CUDA library and the CUDA
// runtime. test_c10_cuda.py compiles and calls it.

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/PeerToPeerAccess.h>
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <sstream>

namespace py = pybind11;
namespace allocator = c10::cuda::CUDACachingAllocator;
using c10::DeviceIndex;

namespace {

void *pointer(uintptr_t address) {
  return reinterpret_cast<void *>(address);
}

uintptr_t number(const void *address) {
  return reinterpret_cast<uintptr_t>(address);
}

uintptr_t handle(const c10::cuda::CUDAStream &stream) {
  return number(stream.stream());
}

void define_devices(py::module &m) {
  m.def("device_count", [] { return int{c10::cuda::device_count()}; });
  m.def("current_device", [] { return int{c10::cuda::current_device()}; });
  m.def("set_device", [](int device) { c10::cuda::set_device(static_cast<DeviceIndex>(device)); });
  m.def("with_device", [](int device, const py::function &function) {
    const c10::cuda::CUDAGuard guard(static_cast<DeviceIndex>(device));
    return function();
  });
  m.def("synchronize", [] { c10::cuda::device_synchronize(); });
  m.def("has_access", [](int device, int peer) {
    return c10::cuda::get_p2p_access(static_cast<DeviceIndex>(device),
                                     static_cast<DeviceIndex>(peer));
  });
  m.def("fail", [](int error) { C10_CUDA_CHECK(static_cast<cudaError_t>(error)); });
}

void define_streams(py::module &m) {
  m.def("current_stream", [](int device) {
    return handle(c10::cuda::getCurrentCUDAStream(static_cast<DeviceIndex>(device)));
  });
  m.def("with_pool_stream", [](bool high_priority, const py::function &function) {
    const auto stream = c10::cuda::getStreamFromPool(high_priority);
    const c10::cuda::CUDAStreamGuard guard(stream);
    return py::make_tuple(handle(stream), stream.priority(), function());
  });
  m.def("with_external_stream", [](uintptr_t address, int device, const py::function &function) {
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromExternal(
        static_cast<cudaStream_t>(pointer(address)), static_cast<DeviceIndex>(device)));
    return function();
  });
  m.def("own_stream_of_thread",
        [] { return handle(c10::cuda::getStreamFromExternal(cudaStreamPerThread, 0)); });
  m.def("is_idle", [] { return c10::cuda::getCurrentCUDAStream().query(); });
  m.def("text_of_current_stream", [] {
    std::ostringstream text;
    text << c10::cuda::getCurrentCUDAStream();
    return text.str();
  });
  m.def("synchronize_with_event", [](uintptr_t stream) {
    at::cuda::CUDAEvent event;
    event.record(c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(pointer(stream)), 0));
    event.synchronize();
  });
  m.def("wait_for_event", [](uintptr_t from, uintptr_t to) {
    at::cuda::CUDAEvent event;
    event.record(c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(pointer(from)), 0));
    event.block(c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(pointer(to)), 0));
  });
}

void define_memory(py::module &m) {
  m.def("raw_alloc", [](size_t bytes) { return number(allocator::raw_alloc(bytes)); });
  m.def("raw_alloc_with_stream", [](size_t bytes, uintptr_t stream) {
    return number(
        allocator::raw_alloc_with_stream(bytes, static_cast<cudaStream_t>(pointer(stream))));
  });
  // The interface of all allocators of PyTorch, which Thrust and other libraries use.
  m.def("raw_allocate",
        [](size_t bytes) { return number(c10::GetAllocator(c10::kCUDA)->raw_allocate(bytes)); });
  m.def("raw_deallocate",
        [](uintptr_t address) { c10::GetAllocator(c10::kCUDA)->raw_deallocate(pointer(address)); });
  m.def("raw_deleters_agree", [] {
    auto *const deleter = c10::GetAllocator(c10::kCUDA)->raw_deleter();
    return deleter != nullptr && deleter == allocator::get()->raw_deleter() &&
           deleter == allocator::get()->allocate(1).get_deleter() &&
           deleter == allocator::get()->allocate(0).get_deleter();
  });
  m.def("raw_delete", [](uintptr_t address) { allocator::raw_delete(pointer(address)); });
  m.def("copy", [](uintptr_t destination, uintptr_t source, size_t bytes) {
    C10_CUDA_CHECK(cudaMemcpyAsync(pointer(destination), pointer(source), bytes, cudaMemcpyDefault,
                                   c10::cuda::getCurrentCUDAStream()));
  });
  m.def("allocated_bytes", [](int device) {
    return allocator::getDeviceStats(static_cast<DeviceIndex>(device)).allocated_bytes[0].current;
  });
  m.def("set_fraction", [](double fraction) { allocator::setMemoryFraction(fraction, 0); });
  m.def("get_fraction", [] { return allocator::getMemoryFraction(0); });
  m.def("empty_cache", [] { allocator::emptyCache(); });
  m.def("base_of", [](uintptr_t address) {
    size_t bytes = 0;
    const auto base = number(allocator::getBaseAllocation(pointer(address), &bytes));
    return std::pair(base, bytes);
  });
  m.def("segments", [] {
    std::vector<std::tuple<int, size_t, size_t, size_t>> list;
    for (const auto &segment : allocator::snapshot().segments) {
      list.emplace_back(segment.device, segment.address, segment.total_size, segment.blocks.size());
    }
    return list;
  });
  m.def("with_pool", [](uint64_t pool, const py::function &function) {
    allocator::beginAllocateToPool(0, {0, pool}, [](cudaStream_t) { return true; });
    auto result = function();
    allocator::endAllocateToPool(0, {0, pool});
    allocator::releasePool(0, {0, pool});
    return result;
  });
  m.def("export_memory", [](uintptr_t address) {
    return py::bytes(allocator::shareIpcHandle(pointer(address)).handle);
  });
  m.def("import_and_read", [](const std::string &handle, size_t bytes) {
    const auto memory = allocator::getIpcDevPtr(handle);
    std::string content(bytes, '\0');
    C10_CUDA_CHECK(cudaMemcpy(content.data(), memory.get(), bytes, cudaMemcpyDeviceToHost));
    return py::bytes(content);
  });
  static int gathered = 0; // how often the function below was called
  m.def("record_history", [](bool enabled) {
    const auto gather = []() -> std::shared_ptr<c10::GatheredContext> {
      ++gathered;
      return std::make_shared<c10::GatheredContext>();
    };
    allocator::recordHistory(enabled, gather, 100, allocator::RecordContext::ALL, false, {});
    return gathered;
  });
  static std::vector<std::pair<int, size_t>> events;
  m.def("track", [] {
    allocator::attachAllocatorTraceTracker(
        [](const auto &entry) { events.emplace_back(entry.action_, entry.size_); });
  });
  m.def("tracked", [] { return std::exchange(events, {}); });
}

} // namespace

PYBIND11_MODULE(c10_cuda_program, m) {
  define_devices(m);
  define_streams(m);
  define_memory(m);
}
