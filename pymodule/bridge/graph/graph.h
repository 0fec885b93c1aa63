// A graph as PyTorch has it: torch.accelerator.Graph, torch.openreg.CUDAGraph,
// torch.cuda.CUDAGraph.
//
// What a stream that captures is given becomes nodes (device/capture.h): launches with what they
// need to run again (launch/queued_launch.cpp), copies, and whatever else is queued on a stream.
// Memory that is allocated for the stream comes from a private pool, which is the graph's until
// reset, so that results and what lies between them keep their addresses.
//
// A replay is one piece of work of a stream: no Python, no dispatcher, no allocation.
#pragma once

#include <ATen/core/GraphImplInterface.h>
#include <ATen/core/Generator.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace openreg {

// The name of nodes that wait for other processes: a graph that has one is never replayed on the
// calling thread. To be compared by its address.
inline constexpr char kCollectiveNode[] = "collective";

class CapturedGraph;

class Graph final : public at::GraphImplInterface {
public:
  explicit Graph(const at::GraphImplArgs &args);
  ~Graph() override;
  Graph(const Graph &) = delete;
  Graph &operator=(const Graph &) = delete;

  // On the current device and stream. The pool {0, 0} is a new one.
  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode mode) override;
  void capture_end() override;
  void instantiate() override;

  // On the current stream of the device that was captured. Any thread; replays of one graph are
  // done one after another.
  void replay() override;
  void reset() override;
  c10::MempoolId_t pool() const override;
  void enable_debug_mode() override;

  // Writes the graph in the language of Graphviz.
  void debug_dump(const std::string &path) override;

  // The graph may draw from this generator beside the device's own. Before the capture.
  void register_generator(const at::Generator &generator);

  // The openreg_graph that was kept, or that replays run.
  uintptr_t raw_graph() const;
  uintptr_t raw_executable() const;

private:
  void require_replayable() const;

  bool keeps_graph_;
  bool is_debugged_ = false;
  bool is_instantiated_ = false;
  bool has_pool_ = false; // one use of it
  uint64_t pool_ = 0;
  int device_ = 0, stream_ = 0;             // that is captured
  std::shared_ptr<CapturedGraph> captured_; // null: nothing was captured
  std::unique_ptr<class CaptureUnderway> underway_;
};

// PyTorch finds graphs by the device type's name. Called once, when the extension is loaded.
void register_graphs();

} // namespace openreg
