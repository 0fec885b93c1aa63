// Python's interface to graphs. Conversions only.

#include "python/bind.h"

#include <torch/csrc/Exceptions.h>

#include <string>
#include <utility>

#include "device/capture.h"
#include "graph/graph.h"
#include "launch/policy.h"

namespace py = pybind11;

namespace openreg {

namespace {

using PoolId = std::pair<uint64_t, uint64_t>;

at::GraphCaptureMode mode_of(const std::string &name) {
  if (name == "global") {
    return at::GraphCaptureMode::Global;
  }
  if (name == "thread_local") {
    return at::GraphCaptureMode::ThreadLocal;
  }
  TORCH_CHECK(name == "relaxed",
              "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got ",
              name);
  return at::GraphCaptureMode::Relaxed;
}

void capture_begin(Graph &graph, const std::optional<PoolId> &pool, const std::string &mode) {
  const auto id = pool.value_or(PoolId{0, 0});
  graph.capture_begin({id.first, id.second}, mode_of(mode));
}

// Returns (capture id, whether it is valid). The id is 0 if the current stream does not capture.
std::pair<uint64_t, bool> current_capture() {
  const int device = openreg_device_current();
  int stream = OPENREG_STREAM_DEFAULT;
  bool is_valid = false;
  check(openreg_stream_current(device, &stream));
  const auto id = openreg_stream_capture(device, stream, &is_valid);
  return {id, is_valid};
}

} // namespace

void define_graphs(py::module &module) {
  py::class_<Graph>(module, "CUDAGraph")
      .def(py::init([](bool keep_graph) {
             return std::make_unique<Graph>(at::GraphImplArgs{.keep_graph = keep_graph});
           }),
           py::arg("keep_graph") = false)
      .def("capture_begin", &capture_begin, py::arg("pool") = std::nullopt,
           py::arg("capture_error_mode") = "global")
      .def("capture_end",
           [](Graph &graph) {
             torch::PyWarningHandler warnings;
             graph.capture_end();
           })
      .def("instantiate", &Graph::instantiate)
      .def("register_generator_state", &Graph::register_generator, py::arg("Generator"))
      .def("replay", &Graph::replay)
      .def("reset", &Graph::reset)
      .def("pool",
           [](const Graph &graph) {
             const auto id = graph.pool();
             return PoolId{id.first, id.second};
           })
      .def("enable_debug_mode", &Graph::enable_debug_mode)
      .def("debug_dump", &Graph::debug_dump, py::arg("debug_path"))
      .def("raw_cuda_graph", &Graph::raw_graph)
      .def("raw_cuda_graph_exec", &Graph::raw_executable);
  module.def("current_capture", &current_capture);
}

} // namespace openreg
