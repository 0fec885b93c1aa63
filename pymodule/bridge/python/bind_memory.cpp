// Python's interface to memory: statistics, cache, history. Conversions only.

#include "python/bind.h"

#include <torch/csrc/Exceptions.h>

#include "allocator/allocator.h"
#include "compat/caching_allocators.h"
#include "memory/allocation/allocator_settings.h"
#include "memory/allocation/blas_workspaces.h"
#include "memory/observation/allocation_log.h"
#include "memory/observation/debug_memory.h"
#include "memory/allocation/memory.h"
#include "memory/observation/memory_history.h"
#include "memory/memory_snapshot.h"
#include "memory/allocation/out_of_memory.h"
#include "memory/allocation/pinned.h"
#include "memory/allocation/pluggable_allocator.h"
#include "core/status.h"
#include "tensor/device_tensor.h"

namespace py = pybind11;

namespace openreg {

namespace {

template <class Stat> py::dict stat_to_dict(const Stat &stat) {
  py::dict dict;
  dict["current"] = stat.current;
  dict["peak"] = stat.peak;
  dict["allocated"] = stat.allocated;
  dict["freed"] = stat.freed;
  return dict;
}

template <class Stats> py::dict stats_of_kinds_to_dict(const Stats &stats) {
  static constexpr std::array<const char *, OPENREG_POOL_KINDS> kinds = {"all", "small_pool",
                                                                         "large_pool"};
  py::dict dict;
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    dict[kinds[kind]] = stat_to_dict(stats[kind]);
  }
  return dict;
}

py::dict memory_stats(int device) {
  const auto stats = device_allocator()->getDeviceStats(device_index(device));
  py::dict dict;
#define X(name) dict[#name] = stats_of_kinds_to_dict(stats.name);
  OPENREG_MEMORY_STAT_LIST(X)
#undef X
  if (const auto *const by_pool = reserved_by_private_pools(stats)) {
    py::dict pools;
    for (const auto &[id, reserved] : *by_pool) {
      pools[py::make_tuple(id.first, id.second)] = stats_of_kinds_to_dict(reserved);
    }
    dict["reserved_bytes_by_private_pools"] = pools;
  }
  dict["oversize_allocations"] = stat_to_dict(stats.oversize_allocations);
  dict["oversize_segments"] = stat_to_dict(stats.oversize_segments);
  dict["max_split_size"] = stats.max_split_size;
  dict["num_sync_all_streams"] = stats.num_sync_all_streams;
  dict["num_alloc_retries"] = stats.num_alloc_retries;
  dict["num_ooms"] = stats.num_ooms;
  dict["num_oom_rejections"] = stats.num_oom_rejections;
  dict["num_device_alloc"] = stats.num_device_alloc;
  dict["num_device_free"] = stats.num_device_free;
  return dict;
}

py::dict duration_to_dict(const c10::CachingAllocator::DurationStat &stat) {
  py::dict dict;
  dict["total"] = stat.total;
  dict["max"] = stat.max;
  dict["min"] = stat.min;
  dict["count"] = stat.count;
  dict["avg"] =
      stat.count > 0 ? static_cast<double>(stat.total) / static_cast<double>(stat.count) : 0.0;
  return dict;
}

py::dict host_memory_stats() {
  const auto stats = pinned_allocator()->get_stats();
  py::dict dict;
#define X(name) dict[#name] = stat_to_dict(stats.name);
  OPENREG_PINNED_STAT_LIST(X)
#undef X
  dict["num_host_alloc"] = stats.num_host_alloc;
  dict["num_host_free"] = stats.num_host_free;
  dict["host_alloc_time"] = duration_to_dict(stats.host_alloc_time);
  dict["host_free_time"] = duration_to_dict(stats.host_free_time);
  return dict;
}

std::pair<uint64_t, uint64_t> mem_get_info(int device) {
  uint64_t free = 0, total = 0;
  check(openreg_ledger_query(device, &free, &total));
  return {free, total};
}

void set_memory_fraction(int device, double fraction) {
  if (const auto &pluggable = current_pluggable_allocator()) {
    if (pluggable->on_memory_fraction != nullptr) {
      pluggable->on_memory_fraction(fraction, device);
    }
    return;
  }
  check(openreg_memory_set_fraction(device, fraction));
}

double get_memory_fraction(int device) {
  double fraction = 1;
  check(openreg_memory_get_fraction(device, &fraction));
  return fraction;
}

uintptr_t raw_alloc(int device, int stream, size_t bytes) {
  auto *const block = allocate_block(device_index(device), stream, bytes);
  const auto address = reinterpret_cast<uintptr_t>(block->address);
  if (address == 0) { // 0 bytes: raw_delete() could not find the block by its address
    free_block(block);
  }
  return address;
}

void raw_delete(uintptr_t address) {
  if (address == 0) {
    return;
  }
  auto *const block = openreg_block_find(reinterpret_cast<const void *>(address));
  TORCH_CHECK_VALUE(
      block != nullptr, "openreg: no allocated block begins at address ", address,
      "; pass an address that caching_allocator_alloc() returned and that was not freed");
  free_block(block);
}

void annotate_memory(uintptr_t address, std::string text) {
  if (const auto *const block = openreg_block_find(reinterpret_cast<const void *>(address))) {
    annotate_block(*block, std::move(text));
  }
}

StackPolicy stack_policy_of(const std::optional<std::string> &context) {
  if (!context) {
    return StackPolicy::kNever;
  }
  if (*context == "state") {
    return StackPolicy::kLiveBlocks;
  }
  return *context == "alloc" ? StackPolicy::kAllocations : StackPolicy::kAllEvents;
}

void record_history(bool enabled, const std::optional<std::string> &context, bool cpp_frames,
                    size_t max_entries, bool clear, bool compile_context,
                    bool annotations_of_all_threads, std::vector<std::string> skipped_actions) {
  require_own_allocator("recordHistory");
  record_memory_history({.enabled = enabled,
                         .stacks = stack_policy_of(context),
                         .cpp_frames = cpp_frames,
                         .max_entries = max_entries,
                         .clear = clear,
                         .compile_context = compile_context,
                         .annotations_of_all_threads = annotations_of_all_threads,
                         .skipped_actions = std::move(skipped_actions)});
}

// Observers cannot be removed, so the reference is never released.
void attach_observer(const py::object &observer) {
  auto *const function = observer.inc_ref().ptr();
  attach_out_of_memory_observer(
      [function](int64_t device, int64_t asked, int64_t most, int64_t free) {
        const py::gil_scoped_acquire gil;
        auto *const result = PyObject_CallFunction(function, "LLLL", device, asked, most, free);
        if (result == nullptr) {
          python_error error;
          error.persist();
          throw std::move(error);
        }
        Py_DECREF(result);
      });
}

// Defines the functions for cuBLAS and cuBLASLt, whose names begin with the library's name.
void define_workspaces(py::module &module) {
  const auto define = [&module](const std::string &name, BlasLibrary library) {
    module.def((name + "_workspace_size").c_str(), [library] {
      return blas_workspace_bytes(static_cast<c10::DeviceIndex>(openreg_device_current()), library);
    });
    module.def(("set_" + name + "_workspace_size").c_str(), [library](int64_t bytes) {
      TORCH_CHECK(bytes >= 0, "workspace size must be non-negative, got ", bytes);
      set_blas_workspace_bytes(library, static_cast<size_t>(bytes));
    });
    module.def(("reset_" + name + "_workspace_size").c_str(),
               [library] { reset_blas_workspace_bytes(library); });
  };
  define("cublas", BlasLibrary::kCublas);
  define("cublaslt", BlasLibrary::kCublasLt);
  module.def("clear_cublas_workspaces", &clear_blas_workspaces);
}

void define_history(py::module &module) {
  module.def("record_memory_history", &record_history);
  module.def("memory_history_is_on", [] { return is_recording.load(); });
  module.def("memory_snapshot", &memory_snapshot);
  module.def("allocation_traceback", &allocation_traceback);
  module.def("annotate_memory", &annotate_memory);
  module.def("set_memory_metadata", &set_memory_metadata);
  module.def("memory_metadata", &memory_metadata);
  module.def("attach_out_of_memory_observer", &attach_observer);
}

// ---- the allocation log
// --------------------------------------------------------------------------

// The events as the bytes of an array of LogEvent: `LOG_EVENT` in dry/report/log.py is its layout.
static_assert(sizeof(LogEvent) == 64);

py::tuple copy_log() {
  AllocationLog log;
  {
    const py::gil_scoped_release no_gil;
    log = copy_allocation_log();
  }
  return py::make_tuple(py::bytes(reinterpret_cast<const char *>(log.events.data()),
                                  log.events.size() * sizeof(LogEvent)),
                        log.operations, log.events_lost);
}

py::tuple place_as_tuple(bool with_stack) {
  const auto place = place_in_log(with_stack);
  return py::make_tuple(place.position, place.sequence, place.thread, place.stack);
}

py::list stack_as_list(uint32_t stack) {
  py::list frames;
  for (const auto &frame : frames_of_stack(stack)) {
    frames.append(py::make_tuple(frame.filename, frame.line, frame.name));
  }
  return frames;
}

void define_log(py::module &module) {
  module.def("start_allocation_log", &start_allocation_log);
  module.def("allocation_log", &copy_log);
  module.def("place_in_log", &place_as_tuple);
  module.def("allocations_at", &allocations_at, py::call_guard<py::gil_scoped_release>());
  module.def("set_module_call", &set_module_call);
  module.def("stack_of_log", &stack_as_list);
}

} // namespace

void define_memory(py::module &module) {
  module.def("mem_get_info", &mem_get_info);
  module.def("memory_stats", &memory_stats);
  module.def("reset_peak_memory_stats",
             [](int device) { device_allocator()->resetPeakStats(device_index(device)); });
  module.def("reset_accumulated_memory_stats",
             [](int device) { device_allocator()->resetAccumulatedStats(device_index(device)); });
  module.def("host_memory_stats", &host_memory_stats);
  module.def("reset_peak_host_memory_stats", &openreg_pinned_reset_peak);
  module.def("reset_accumulated_host_memory_stats", &openreg_pinned_reset_accumulated);
  module.def("empty_cache", [] { device_allocator()->emptyCache({0, 0}); });
  module.def("set_memory_fraction", &set_memory_fraction);
  module.def("get_memory_fraction", &get_memory_fraction);
  module.def("enable_cache", &enable_cache);
  module.def("cache_is_enabled", &cache_is_enabled);
  module.def("set_allocator_settings", &set_allocator_settings);
  module.def("raw_alloc", &raw_alloc, py::call_guard<py::gil_scoped_release>());
  module.def("raw_delete", &raw_delete, py::call_guard<py::gil_scoped_release>());
  module.def("resize_storage", [](const c10::Storage &storage, size_t bytes) {
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  });
  module.def("check_memory_damage_at_exit", &check_memory_damage_at_exit);
  define_workspaces(module);
  define_history(module);
  define_log(module);
}

} // namespace openreg
