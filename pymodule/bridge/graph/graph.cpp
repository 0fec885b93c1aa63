#include "graph/graph.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <mutex>
#include <utility>
#include <vector>

#include "allocator/allocator.h"
#include "core/device_type.h"
#include "device/capture.h"
#include "graph/dot.h"
#include "launch/argument_devices.h"
#include "launch/philox_offsets.h"
#include "launch/policy.h"
#include "memory/allocation/mempool.h"
#include "operators/random/torch_generator.h"
#include "profiler/notes.h"
#include "streams/current.h"
#include "streams/run_ahead.h"
#include "streams/observer.h"

namespace openreg {

// A captured graph. The Graph and its queued replays own it together.
class CapturedGraph {
public:
  ~CapturedGraph() { openreg_graph_destroy(graph_); }

  GraphPhiloxState &philox() { return philox_; }
  void set_observer(std::unique_ptr<Observer::CaptureObserver> observer) {
    observer_ = std::move(observer);
  }
  const openreg_graph *graph() const { return graph_; }

  // Ends the capture that began on the stream. Errors: those of openreg_capture_end.
  openreg_status end(int device, int stream) {
    const auto status = openreg_capture_end(device, stream, &graph_);
    for (size_t i = 0; status == OPENREG_OK && i < openreg_graph_node_count(graph_); ++i) {
      has_collectives_ |= openreg_graph_node_at(graph_, i)->work.name == kCollectiveNode;
    }
    return status;
  }

  // Submits one replay to the device's current stream. Reserves random words now, as a launch does.
  static void replay(const std::shared_ptr<CapturedGraph> &self, c10::DeviceIndex device) {
    if (self->observer_ != nullptr) [[unlikely]] {
      self->observer_->replay({device, current_stream(device)});
    }
    auto work = [self, device, begins = self->philox_.reserve_all()] {
      const std::lock_guard<std::mutex> lock(self->mutex_);
      if (!InlineGuard::any()) { // on a worker
        keep_on_share_of_cores(device);
      }
      self->philox_.set_begins(begins);
      return records_work.load(std::memory_order_relaxed) ? self->run_recorded()
                                                          : openreg_graph_run(self->graph_);
    };
    if (self->has_collectives_) {
      queue_on_stream(device, std::move(work));
    } else {
      submit(self->cost_, kShortElements, device, std::move(work));
    }
  }

private:
  // Like openreg_graph_run, but records each node for the profiler.
  openreg_status run_recorded() const {
    auto &parts = parts_of_work();
    for (size_t i = 0; i < openreg_graph_node_count(graph_); ++i) {
      const auto &work = openreg_graph_node_at(graph_, i)->work;
      const auto parts_before = parts.size();
      const auto begin_ns = now_ns();
      if (const auto status = work.run(work.data); status != OPENREG_OK) {
        return status;
      }
      if (parts.size() ==
          parts_before) { // else the node replayed another graph, which recorded its parts
        parts.push_back({work.name, begin_ns, now_ns()});
      }
    }
    return OPENREG_OK;
  }

  std::mutex mutex_; // serializes replays on several streams
  openreg_graph *graph_ = nullptr;
  bool has_collectives_ = false;
  GraphPhiloxState philox_;
  LaunchCost cost_;                                     // of a replay
  std::unique_ptr<Observer::CaptureObserver> observer_; // null: none
};

// Exists from capture_begin to capture_end.
class CaptureInProgress {
public:
  CaptureInProgress(uint64_t capture, GraphPhiloxState &philox) : philox_(capture, philox) {}

private:
  PhiloxCaptureScope philox_;
};

namespace {

openreg_capture_mode mode_of(at::GraphCaptureMode mode) {
  switch (mode) {
  case at::GraphCaptureMode::ThreadLocal:
    return OPENREG_CAPTURE_THREAD_LOCAL;
  case at::GraphCaptureMode::Relaxed:
    return OPENREG_CAPTURE_RELAXED;
  default:
    return OPENREG_CAPTURE_GLOBAL;
  }
}

// CUDA allocates on the default stream, so the blocks are outside of the graph's pool.
std::vector<Block> allocate_generator_blocks(int device, size_t generators) {
  constexpr size_t kNumbers = 2; // a seed and an offset
  std::vector<Block> blocks;
  for (size_t i = 0; i < generators * kNumbers; ++i) {
    blocks.emplace_back(allocate_block(static_cast<c10::DeviceIndex>(device),
                                       OPENREG_STREAM_DEFAULT, sizeof(int64_t)),
                        &free_block);
  }
  return blocks;
}

} // namespace

Graph::Graph(const at::GraphImplArgs &args) : keeps_graph_(args.keep_graph) {}

Graph::~Graph() {
  try {
    reset();
  } catch (const std::exception &error) {
    TORCH_WARN("openreg: resetting a graph failed: ", error.what());
  }
}

// ---- capture ------------------------------------------------------------------------------------

void Graph::capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode mode) {
  TORCH_CHECK(in_progress_ == nullptr && (captured_ == nullptr || captured_->graph() == nullptr),
              "This CUDAGraph instance already owns a captured graph. To capture a new graph, "
              "create a new instance.");
  const int device = openreg_device_current();
  const int stream = current_stream(device);
  TORCH_CHECK(stream != OPENREG_STREAM_DEFAULT,
              "CUDA graphs must be captured on a non-default stream. (However, after capture, it's "
              "ok to replay them on the default stream.)");
  if (captured_ == nullptr) { // else register_generator() made it
    captured_ = std::make_shared<CapturedGraph>();
  }
  const auto &own = default_generator(static_cast<c10::DeviceIndex>(device));
  captured_->philox().add(static_cast<GeneratorImpl *>(own.unsafeGetGeneratorImpl())->source());
  generator_blocks_ = allocate_generator_blocks(device, captured_->philox().generator_count());
  const auto number =
      pool.second != 0 ? static_cast<uint64_t>(pool.second) : allocate_graph_pool_id();
  check(openreg_mempool_retain(number));
  const auto status = openreg_capture_begin(device, stream, mode_of(mode), number);
  if (status != OPENREG_OK) {
    release_pool(number);
    raise(status);
  }
  if (has_pool_) { // from a capture that failed
    release_pool(pool_);
  }
  has_pool_ = true;
  pool_ = number;
  device_ = device;
  stream_ = stream;
  bool is_valid = false;
  const auto capture = openreg_stream_capture(device, stream, &is_valid);
  in_progress_ = std::make_unique<CaptureInProgress>(capture, captured_->philox());
  notify_observers(
      [&](Observer &observer) { captured_->set_observer(observer.begin_capture(capture)); });
}

void Graph::capture_end() {
  TORCH_CHECK(in_progress_ != nullptr, "capture_end() was called before capture_begin()");
  TORCH_CHECK(current_stream(device_) == stream_,
              "Capture must end on the same stream it began on.");
  const auto status = captured_->end(device_, stream_);
  if (status == OPENREG_CAPTURE_WRONG_THREAD) { // the capture continues
    raise(status);
  }
  in_progress_.reset();
  if (status != OPENREG_OK) {
    captured_.reset();
    raise(status);
  }
  if (openreg_graph_node_count(captured_->graph()) == 0) {
    TORCH_WARN("The CUDA Graph is empty. This usually means that the graph was attempted to be "
               "captured on wrong device or stream.");
  }
  if (!keeps_graph_) {
    instantiate();
  }
}

void Graph::instantiate() {
  TORCH_CHECK(captured_ != nullptr && in_progress_ == nullptr,
              "capture_end() must have been called before calling instantiate");
  TORCH_CHECK(keeps_graph_ || !is_instantiated_,
              "instantiate() is intended to be called by the user only when keep_graph=true");
  is_instantiated_ = true;
}

void Graph::register_generator(const at::Generator &generator) {
  TORCH_CHECK(in_progress_ == nullptr,
              "openreg: register_generator_state() must be called before the capture begins");
  TORCH_CHECK(generator.defined() && generator.device().type() == kDeviceType,
              "openreg: expected a generator on a device of type ", kDeviceType, ", got one on ",
              generator.device());
  if (captured_ == nullptr) {
    captured_ = std::make_shared<CapturedGraph>();
  }
  captured_->philox().add(
      static_cast<GeneratorImpl *>(generator.unsafeGetGeneratorImpl())->source());
}

// ---- replay -------------------------------------------------------------------------------------

void Graph::require_replayable() const {
  TORCH_CHECK(captured_ != nullptr && captured_->graph() != nullptr,
              "Called CUDAGraph::replay without a preceding successful capture.");
}

void Graph::replay() {
  require_replayable();
  if (!is_instantiated_) {
    instantiate();
  }
  const auto device = static_cast<c10::DeviceIndex>(device_);
  TORCH_CHECK_NOT_IMPLEMENTED(
      !captured_->philox().is_used() || !is_capturing(device),
      "openreg: cannot replay a graph that draws random numbers while capturing "
      "another graph");
  last_launch = "openreg::graph_replay"; // for the profiler
  const WithoutGil no_gil;
  CapturedGraph::replay(captured_, device);
}

void Graph::reset() {
  if (in_progress_ != nullptr) {
    openreg_graph *graph = nullptr;
    (void)openreg_capture_end(device_, stream_, &graph); // a failed capture has no graph
    openreg_graph_destroy(graph);
    in_progress_.reset();
  }
  captured_.reset();
  generator_blocks_.clear();
  is_instantiated_ = false;
  if (has_pool_) {
    has_pool_ = false;
    release_pool(pool_);
  }
}

// ---- inspection ---------------------------------------------------------------------------------

c10::MempoolId_t Graph::pool() const {
  TORCH_CHECK(has_pool_, "Called CUDAGraph::pool() without a preceding successful capture.");
  return {0, pool_};
}

void Graph::enable_debug_mode() {
  is_debugged_ = true;
}

void Graph::debug_dump(const std::string &path) {
  if (!is_debugged_ && !keeps_graph_) {
    TORCH_WARN("CUDA Graphs debug not enabled, set with [graph].enable_debug_mode()");
    return;
  }
  require_replayable();
  std::ofstream file(path);
  write_dot(file, *captured_->graph());
  file.close();
  TORCH_CHECK(file.good(), "openreg: cannot write the graph to ", path);
}

uintptr_t Graph::raw_graph() const {
  TORCH_CHECK(keeps_graph_, "You cannot access the raw cudaGraph_t instance unless CUDAGraph was "
                            "initialized with keep_graph=true");
  require_replayable();
  return reinterpret_cast<uintptr_t>(captured_->graph());
}

uintptr_t Graph::raw_executable() const {
  TORCH_CHECK(is_instantiated_, "You cannot access the raw cudaGraphExec_t instance until "
                                "instantiate() has been called");
  require_replayable();
  return reinterpret_cast<uintptr_t>(captured_->graph());
}

void register_graphs() {
  std::string name = platform_name();
  std::ranges::transform(name, name.begin(), [](unsigned char each) { return std::toupper(each); });
  at::GraphImplRegistry()->Register(
      name,
      [](const at::GraphImplArgs &args) -> std::unique_ptr<at::GraphImplInterface> {
        return std::make_unique<Graph>(args);
      },
      "graphs of openreg's devices");
}

} // namespace openreg
