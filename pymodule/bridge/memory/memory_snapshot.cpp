#include "memory/memory_snapshot.h"

#include <torch/csrc/profiler/combined_traceback.h>

#include "allocator/allocator.h"
#include "memory/allocation/allocator_settings.h"
#include "memory/allocation/memory.h"
#include "memory/observation/memory_history.h"
#include "memory/allocation/pluggable_allocator.h"
#include "core/status.h"
#include "streams/handle.h"

namespace torch {
// The header of PyTorch that declares this includes a header that PyTorch does not install.
TORCH_API std::vector<pybind11::object> py_symbolize(std::vector<CapturedTraceback *> &tracebacks);
} // namespace torch

namespace py = pybind11;

namespace openreg {

namespace {

class Snapshot {
public:
  explicit Snapshot(int device) { check(openreg_memory_take_snapshot(device, &taken_)); }
  ~Snapshot() { openreg_memory_free_snapshot(&taken_); }
  Snapshot(const Snapshot &) = delete;
  Snapshot &operator=(const Snapshot &) = delete;

  const openreg_memory_snapshot *operator->() const { return &taken_; }

private:
  openreg_memory_snapshot taken_ = {};
};

// Requires a context of PyTorch. Empty outside of anomaly mode.
py::list forward_lines_of(const torch::CapturedTraceback &traceback) {
  py::list lines;
  if (const auto &found = traceback.forward_traceback()) {
    for (const auto &line : *found) {
      lines.append(py::str(line));
    }
  }
  return lines;
}

// Symbolizes many stacks at once: for C++ stacks that is much faster than one by one.
class Frames {
public:
  void add(const py::dict &owner, const Context &context) {
    if (context) {
      owners_.push_back(owner);
      kept_.push_back(context);
    } else {
      owner["frames"] = py::list();
    }
  }

  void fill_in() {
    std::vector<torch::CapturedTraceback *> tracebacks;
    tracebacks.reserve(kept_.size());
    for (const auto &context : kept_) {
      tracebacks.push_back(torch::getCapturedTracebackFromContext(context));
    }
    const auto frames = torch::py_symbolize(tracebacks);
    for (size_t i = 0; i < frames.size(); ++i) {
      owners_[i]["frames"] = frames[i];
      // In anomaly mode, backward allocations know the lines of the forward pass.
      if (const auto forward = forward_lines_of(*tracebacks[i]); !forward.empty()) {
        owners_[i]["forward_frames"] = forward;
      }
    }
  }

private:
  std::vector<py::dict> owners_;
  std::vector<Context> kept_;
};

py::tuple id_of(uint64_t mempool) {
  return py::make_tuple(0, mempool);
}

const char *name_of_state(const openreg_block_info &block) {
  switch (block.state) {
  case openreg_block_info::OPENREG_BLOCK_ALLOCATED:
    return "active_allocated";
  case openreg_block_info::OPENREG_BLOCK_AWAITING_FREE:
    return "active_pending_free";
  default:
    return "inactive";
  }
}

Context find(const std::unordered_map<uintptr_t, Context> &contexts, uintptr_t address) {
  const auto found = contexts.find(address);
  return found == contexts.end() ? nullptr : found->second;
}

py::dict block_to_dict(const openreg_block_info &block, const DeviceHistory &history,
                       Frames &frames) {
  py::dict dict;
  dict["address"] = block.address;
  dict["size"] = block.bytes;
  dict["requested_size"] = block.requested_bytes;
  dict["state"] = name_of_state(block);
  const bool is_free = block.state == openreg_block_info::OPENREG_BLOCK_FREE;
  frames.add(dict, is_free ? nullptr : find(history.blocks, block.address));
  return dict;
}

py::dict segment_to_dict(int device, const openreg_segment_info &segment,
                         const openreg_block_info *blocks, const DeviceHistory &history,
                         Frames &frames) {
  py::dict dict;
  dict["device"] = device;
  dict["address"] = segment.address;
  dict["total_size"] = segment.bytes;
  dict["allocated_size"] = segment.allocated_bytes;
  dict["active_size"] = segment.active_bytes;
  dict["requested_size"] = segment.requested_bytes;
  dict["stream"] = handle_of_stream(device, segment.stream);
  dict["segment_type"] = segment.kind == OPENREG_POOL_LARGE ? "large" : "small";
  dict["segment_pool_id"] = id_of(segment.mempool);
  dict["is_expandable"] = segment.is_expandable;
  frames.add(dict, find(history.ranges, segment.address));
  py::list list;
  for (size_t i = 0; i < segment.block_count; ++i) {
    list.append(block_to_dict(blocks[segment.first_block + i], history, frames));
  }
  dict["blocks"] = list;
  return dict;
}

py::dict entry_to_dict(int device, const HistoryEvent &entry, Frames &frames) {
  py::dict dict;
  dict["action"] = name_of(entry.action);
  dict[entry.action == HistoryEvent::kExhausted ? "device_free" : "addr"] = entry.address;
  dict["size"] = entry.bytes;
  dict["stream"] = handle_of_stream(device, entry.stream);
  dict["time_us"] = entry.time_us;
  dict["compile_context"] = entry.compile_context;
  dict["user_metadata"] = entry.metadata;
  dict["pool_id"] = id_of(entry.mempool);
  if (entry.context) {
    frames.add(dict, entry.context);
  }
  return dict;
}

py::list external_annotations() {
  py::list list;
  for (const auto &annotation : annotations()) {
    py::dict dict;
    dict["device"] = annotation.device;
    dict["time_us"] = annotation.time_us;
    dict["name"] = annotation.name;
    dict["stage"] = annotation.stage;
    list.append(dict);
  }
  return list;
}

} // namespace

py::dict memory_snapshot(uint64_t mempool, bool include_traces) {
  require_own_allocator("snapshot");
  int count = 0;
  check(openreg_device_count(&count));
  Frames frames;
  py::list segments, traces;
  for (int device = 0; device < count; ++device) {
    const auto history = history_of(device, include_traces);
    const Snapshot snapshot(device);
    py::list trace;
    for (const auto &entry : history.entries) {
      trace.append(entry_to_dict(device, entry, frames));
    }
    traces.append(trace);
    size_t active_bytes = 0;
    for (size_t i = 0; i < snapshot->segment_count; ++i) {
      const auto &segment = snapshot->segments[i];
      if (mempool == 0 || segment.mempool == mempool) {
        segments.append(segment_to_dict(device, segment, snapshot->blocks, history, frames));
        active_bytes += segment.active_bytes;
      }
    }
    record_snapshot(device, active_bytes, mempool);
  }
  frames.fill_in();
  py::dict result;
  result["segments"] = segments;
  result["device_traces"] = traces;
  result["allocator_settings"] = allocator_settings();
  result["external_annotations"] = external_annotations();
  return result;
}

py::object allocation_traceback(uintptr_t address) {
  const int device = openreg_arena_device_of(reinterpret_cast<const void *>(address));
  const auto context = device < 0 ? nullptr : context_of(device, address);
  if (!context) {
    return py::none();
  }
  std::vector<torch::CapturedTraceback *> traceback = {
      torch::getCapturedTracebackFromContext(context)};
  return torch::py_symbolize(traceback).front();
}

} // namespace openreg
