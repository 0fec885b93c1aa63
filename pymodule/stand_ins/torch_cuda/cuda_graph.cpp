// ATen/cuda/CUDAGraph.h: the graphs of the extension module, as torch.cuda.CUDAGraph has them.
//
// The class belongs to PyTorch, and programs allocate it. Its field graph_ holds the extension's
// graph.

#include <ATen/core/GraphImplInterface.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <torch/version.h>

#include <mutex>
#include <unordered_map>

#include "device/capture.h"
#include "stand_ins/torch_cuda/host_functions.h"

namespace at::cuda {

namespace {

cudaGraph_t handle_of(std::unique_ptr<GraphImplInterface> graph) {
  return reinterpret_cast<cudaGraph_t>(graph.release());
}

GraphImplInterface &graph_of(cudaGraph_t handle) {
  return *reinterpret_cast<GraphImplInterface *>(handle);
}

GraphCaptureMode mode_of(cudaStreamCaptureMode mode) {
  switch (mode) {
  case cudaStreamCaptureModeThreadLocal:
    return GraphCaptureMode::ThreadLocal;
  case cudaStreamCaptureModeRelaxed:
    return GraphCaptureMode::Relaxed;
  default:
    return GraphCaptureMode::Global;
  }
}

// The graphs that capture, by the number of the capture.
struct Captures {
  std::mutex mutex;
  std::unordered_map<CaptureId_t, CUDAGraph *> graphs;
};

Captures &captures() {
  static auto *const all = new Captures();
  return *all;
}

// Returns the number of the capture of the current stream, or 0.
CaptureId_t current_capture() {
  const auto stream = c10::cuda::getCurrentCUDAStream();
  bool is_valid = false;
  return openreg_stream_capture(stream.device_index(), static_cast<int>(stream.id()), &is_valid);
}

void forget(CaptureId_t capture) {
  const std::lock_guard lock(captures().mutex);
  captures().graphs.erase(capture);
}

} // namespace

CUDAGraph::CUDAGraph(bool keep_graph)
    : capture_stream_(c10::cuda::getCurrentCUDAStream()), keep_graph_(keep_graph) {
  openreg::host_functions(); // raises an error outside of CUDA mode
  graph_ = handle_of(create_graph_impl(kCUDA, {.keep_graph = keep_graph}));
}

CUDAGraph::~CUDAGraph() {
  forget(capture_id_);
  const std::unique_ptr<GraphImplInterface> owner(&graph_of(graph_));
}

void CUDAGraph::capture_begin(MempoolId_t pool, cudaStreamCaptureMode capture_mode) {
  graph_of(graph_).capture_begin(pool, mode_of(capture_mode));
  capture_id_ = current_capture();
  const std::lock_guard lock(captures().mutex);
  captures().graphs[capture_id_] = this;
}

void CUDAGraph::capture_end() {
  forget(capture_id_);
  graph_of(graph_).capture_end();
}

void CUDAGraph::instantiate() {
  graph_of(graph_).instantiate();
}

void CUDAGraph::replay() {
  graph_of(graph_).replay();
}

void CUDAGraph::reset() {
  forget(capture_id_);
  graph_of(graph_).reset();
}

MempoolId_t CUDAGraph::pool() {
  return graph_of(graph_).pool();
}

void CUDAGraph::enable_debug_mode() {
  graph_of(graph_).enable_debug_mode();
}

// A graph of PyTorch has no handles of the runtime here.
cudaGraph_t CUDAGraph::raw_cuda_graph() {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "openreg: at::cuda::CUDAGraph::raw_cuda_graph is not "
                                     "supported: capture with cudaStreamBeginCapture to get a "
                                     "cudaGraph_t");
}

cudaGraphExec_t CUDAGraph::raw_cuda_graph_exec() {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "openreg: at::cuda::CUDAGraph::raw_cuda_graph_exec is not "
                                     "supported: capture with cudaStreamBeginCapture to get a "
                                     "cudaGraphExec_t");
}

CUDAGraph *CUDAGraph::get_currently_capturing_graph() {
  const std::lock_guard lock(captures().mutex);
  const auto found = captures().graphs.find(current_capture());
  TORCH_CHECK(found != captures().graphs.end(),
              "get_currently_capturing_graph() can be used only between capture_begin() and "
              "capture_end(). Did you use a stream without making it depend upon the original "
              "stream used for capture?");
  return found->second;
}

#if TORCH_VERSION_MINOR < 14
void CUDAGraph::register_generator_state(const Generator &generator) {
  openreg::host_functions().register_generator(graph_of(graph_), generator);
}

void CUDAGraph::debug_dump(const std::string &debug_path) {
  graph_of(graph_).debug_dump(debug_path);
}
#endif

} // namespace at::cuda

#if TORCH_VERSION_MINOR < 14
void at::CUDAGeneratorImpl::register_graph(cuda::CUDAGraph *graph) {
  graph->register_generator_state(
      Generator(c10::intrusive_ptr<c10::GeneratorImpl>::reclaim_copy(this)));
}
#endif
