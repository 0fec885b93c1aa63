// A C++ extension as other projects write them: it uses the host functions of PyTorch's CUDA
// library and registers operators for CUDA. test_host_functions.py compiles and calls it.

#include <torch/extension.h>

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/cuda/CUDAUtils.h>
#include <ATen/cuda/CachingHostAllocator.h>
#include <ATen/cuda/EmptyTensor.h>
#include <ATen/cuda/Exceptions.h>
#include <ATen/cuda/MemPool.h>
#include <ATen/cuda/PeerToPeerAccess.h>
#include <ATen/cuda/PhiloxUtils.cuh>
#include <ATen/cuda/PinnedMemoryAllocator.h>
#include <ATen/cuda/Sleep.h>
#include <ATen/cuda/detail/CUDAHooks.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/cuda/memory_snapshot.h>

#include <mutex>

namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

// The words that a kernel would draw, with the host's view of the generator's state.
std::pair<uint64_t, uint64_t> reserve(const std::optional<at::Generator> &given, uint64_t words) {
  auto *const generator = at::get_generator_or_default<at::CUDAGeneratorImpl>(
      given, at::cuda::detail::getDefaultCUDAGenerator());
  at::PhiloxCudaState state;
  {
    const std::lock_guard lock(generator->mutex_);
    state = generator->philox_cuda_state(words);
  }
  const auto [seed, offset] = at::cuda::philox::unpack(state);
  return {seed, offset};
}

// In a capture the words are known when the work runs: a node of the graph writes them.
void reserve_on_stream(uint64_t words, at::Tensor pinned) {
  struct Work {
    at::PhiloxCudaState state;
    int64_t *target;
  };
  auto *const generator = at::get_generator_or_default<at::CUDAGeneratorImpl>(
      std::nullopt, at::cuda::detail::getDefaultCUDAGenerator());
  auto *const work = new Work{generator->philox_cuda_state(words), pinned.data_ptr<int64_t>()};
  C10_CUDA_CHECK(cudaLaunchHostFunc(
      at::cuda::getCurrentCUDAStream(),
      [](void *data) {
        const auto *const work = static_cast<Work *>(data);
        *work->target = static_cast<int64_t>(std::get<1>(at::cuda::philox::unpack(work->state)));
      },
      work));
}

// A kernel for CUDA that is code for the host and copies of the runtime.
at::Tensor reversed(const at::Tensor &values) {
  const c10::cuda::CUDAGuard guard(values.device());
  const auto stream = at::cuda::getCurrentCUDAStream();
  auto host = at::empty(values.sizes(), values.options().device(at::kCPU).pinned_memory(true));
  auto result = at::empty(values.sizes(), values.options());
  const auto bytes = values.nbytes();
  AT_CUDA_CHECK(cudaMemcpyAsync(host.mutable_data_ptr(), values.const_data_ptr(), bytes,
                                cudaMemcpyDeviceToHost, stream));
  stream.synchronize();
  const auto turned = host.flip(0);
  AT_CUDA_CHECK(cudaMemcpyAsync(result.mutable_data_ptr(), turned.const_data_ptr(), bytes,
                                cudaMemcpyHostToDevice, stream));
  stream.synchronize();
  return result;
}

at::Tensor twice_on_cpu(const at::Tensor &values) {
  return values * 2;
}

at::Tensor twice_on_cuda(const at::Tensor &) {
  TORCH_CHECK(false, "the kernel for CUDA was called");
}

void define_devices(py::module &m) {
  m.def("properties", [](int device) {
    const auto *const found = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device));
    return std::tuple(std::string(found->name), found->multiProcessorCount, found->totalGlobalMem);
  });
  m.def("warp_size", &at::cuda::warp_size);
  m.def("can_access", [](int device, int peer) {
    const auto from = static_cast<c10::DeviceIndex>(device);
    const auto to = static_cast<c10::DeviceIndex>(peer);
    return at::cuda::canDeviceAccessPeer(from, to) && at::cuda::get_p2p_access(from, to);
  });
  m.def("has_fabric", [](int device) {
    return at::cuda::get_fabric_access(static_cast<c10::DeviceIndex>(device));
  });
  m.def("hooks_see_cuda", [] { return at::detail::getCUDAHooks().hasCUDA(); });
  m.def("blas_handle", [] { at::cuda::getCurrentCUDABlasHandle(); });
  m.def("sparse_handle", [] { at::cuda::getCurrentCUDASparseHandle(); });
}

void define_streams(py::module &m) {
  m.def("current_stream",
        [] { return reinterpret_cast<uintptr_t>(at::cuda::getCurrentCUDAStream().stream()); });
  m.def("milliseconds_of_sleep", [](int64_t cycles, const py::function &open_gate) {
    at::cuda::CUDAEvent start(cudaEventDefault), end(cudaEventDefault);
    start.record();
    at::cuda::sleep(cycles);
    end.record();
    const bool was_running = !end.query();
    open_gate();
    end.synchronize();
    return std::pair(was_running, start.elapsed_time(end));
  });
}

void define_memory(py::module &m) {
  m.def("empty", [](std::vector<int64_t> size, int device) {
    return at::Tensor(at::detail::empty_cuda(
        size, at::kFloat, at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)),
        std::nullopt));
  });
  m.def("empty_strided", [](std::vector<int64_t> size, std::vector<int64_t> stride) {
    return at::Tensor(at::detail::empty_strided_cuda(size, stride, at::kHalf, std::nullopt));
  });
  m.def("raw_alloc",
        [](size_t bytes) { return reinterpret_cast<uintptr_t>(allocator::raw_alloc(bytes)); });
  m.def("raw_delete",
        [](uintptr_t address) { allocator::raw_delete(reinterpret_cast<void *>(address)); });
  m.def("allocator_is_cuda", [] {
    return at::cuda::getCUDADeviceAllocator() == c10::GetAllocator(c10::DeviceType::CUDA) ||
           at::cuda::getCUDADeviceAllocator() == allocator::get();
  });
  m.def("pinned_bytes", [](size_t bytes) {
    const auto pinned = at::cuda::getPinnedMemoryAllocator()->allocate(bytes);
    return at::getHostAllocator(at::kCUDA)->get_stats().allocated_bytes.current;
  });
  m.def("workspace_sizes", [] {
    return std::pair(at::cuda::getChosenWorkspaceSize(), at::cuda::getCUDABlasLtWorkspaceSize());
  });
  m.def("clear_workspaces", &at::cuda::clearCublasWorkspaces);
  m.def("record_history", [](std::optional<std::string> enabled) {
    torch::cuda::_record_memory_history(std::move(enabled), "all", "python");
  });
  m.def("history", [](int device) {
    std::vector<std::tuple<int, size_t, size_t>> events;
    const auto snapshot = allocator::snapshot();
    for (const auto &entry : snapshot.device_traces.at(static_cast<size_t>(device))) {
      events.emplace_back(entry.action_, entry.addr_, entry.size_);
    }
    return events;
  });
  m.def("history_is_on", [] { return allocator::isHistoryEnabled(); });
  m.def("pickled", [] { return py::bytes(torch::cuda::_memory_snapshot_pickled()); });
  static std::vector<std::pair<int64_t, size_t>> failures;
  m.def("watch_failures", [] {
    allocator::attachOutOfMemoryObserver(
        [](int64_t device, size_t asked, size_t, size_t) { failures.emplace_back(device, asked); });
  });
  m.def("failures", [] { return std::exchange(failures, {}); });
  py::class_<at::cuda::MemPool>(m, "MemPool")
      .def(py::init([] { return std::make_unique<at::cuda::MemPool>(); }))
      .def_property_readonly("id", &at::cuda::MemPool::id)
      .def("use_count", &at::cuda::MemPool::use_count);
}

void define_random(py::module &m) {
  m.def("reserve", &reserve);
  m.def("reserve_on_stream", &reserve_on_stream);
  m.def("make_generator", [](uint64_t seed) {
    auto generator = at::cuda::detail::createCUDAGenerator();
    generator.set_current_seed(seed);
    return generator;
  });
  m.def("offset", [](const at::Generator &generator) {
    return at::check_generator<at::CUDAGeneratorImpl>(generator)->philox_offset_per_thread();
  });
}

void define_graphs(py::module &m) {
  py::class_<at::cuda::CUDAGraph>(m, "Graph")
      .def(py::init<bool>(), py::arg("keep_graph") = false)
      .def("capture_begin", [](at::cuda::CUDAGraph &graph) { graph.capture_begin(); })
      .def("capture_end", &at::cuda::CUDAGraph::capture_end)
      .def("replay", &at::cuda::CUDAGraph::replay)
      .def("reset", &at::cuda::CUDAGraph::reset)
      .def("pool", &at::cuda::CUDAGraph::pool)
      .def("is_current", [](at::cuda::CUDAGraph &graph) {
        return at::cuda::CUDAGraph::get_currently_capturing_graph() == &graph;
      });
}

} // namespace

TORCH_LIBRARY(openreg_host_functions, m) {
  m.def("reversed(Tensor values) -> Tensor");
  m.def("twice(Tensor values) -> Tensor");
}

TORCH_LIBRARY_IMPL(openreg_host_functions, CPU, m) {
  m.impl("twice", &twice_on_cpu);
}

TORCH_LIBRARY_IMPL(openreg_host_functions, CUDA, m) {
  m.impl("reversed", &reversed);
  m.impl("twice", &twice_on_cuda);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  define_devices(m);
  define_streams(m);
  define_memory(m);
  define_random(m);
  define_graphs(m);
}
