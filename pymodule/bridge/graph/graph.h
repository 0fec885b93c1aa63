// The implementation of torch.accelerator.Graph, torch.openreg.CUDAGraph and torch.cuda.CUDAGraph.
//
// Work submitted to a capturing stream becomes nodes (device/capture.h): launches
// (launch/queued_launch.cpp), copies, and all other queued work. Memory for the stream comes from a
// private pool, which belongs to the graph until reset(). So results and intermediate tensors keep
// their addresses.
//
// A replay is one piece of work on a stream. It uses no Python, no dispatcher and no allocation.
#pragma once

#include <ATen/core/GraphImplInterface.h>
#include <ATen/core/Generator.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "memory/allocation/memory.h"

namespace openreg {

// The name of nodes that wait for other processes. A graph with such a node never runs on the
// calling thread. Compare names by address.
inline constexpr char kCollectiveNode[] = "collective";

class CapturedGraph;

class Graph final : public at::GraphImplInterface {
public:
  explicit Graph(const at::GraphImplArgs &args);
  ~Graph() override;
  Graph(const Graph &) = delete;
  Graph &operator=(const Graph &) = delete;

  // Captures the current stream of the current device. Pool {0, 0} stands for a new pool.
  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode mode) override;
  void capture_end() override;
  void instantiate() override;

  // Submits a replay to the current stream of the captured device. Thread-safe; replays of one
  // graph run one after another.
  void replay() override;
  void reset() override;
  c10::MempoolId_t pool() const override;
  void enable_debug_mode() override;

  // Writes the graph in the Graphviz DOT language.
  void debug_dump(const std::string &path) override;

  // Allows the graph to draw from this generator as well as the device's own. Call it before the
  // capture.
  void register_generator(const at::Generator &generator);

  // Address of the openreg_graph.
  uintptr_t raw_graph() const;
  uintptr_t raw_executable() const;

private:
  void require_replayable() const;

  bool keeps_graph_;
  bool is_debugged_ = false;
  bool is_instantiated_ = false;
  bool has_pool_ = false; // whether this holds a use of pool_
  uint64_t pool_ = 0;
  int device_ = 0, stream_ = 0;             // the captured stream
  std::shared_ptr<CapturedGraph> captured_; // null: nothing captured
  std::unique_ptr<class CaptureInProgress> in_progress_;
  // The seed and the offset of each generator, which CUDA's graphs keep in device memory. They only
  // take the memory here: replays use GraphPhiloxState.
  std::vector<Block> generator_blocks_;
};

// Registers Graph under the device type's name. Call it once, when the extension is loaded.
void register_graphs();

} // namespace openreg
