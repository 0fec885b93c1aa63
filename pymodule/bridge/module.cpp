// torch_openreg._C: what the Python package asks of the bridge. Conversions only.

#include <torch/csrc/utils/pybind.h>

#include "allocator.h"
#include "amp.h"
#include "autocast.h"
#include "boxed.h"
#include "exit.h"
#include "gate.h"
#include "memory.h"
#include "queued.h"
#include "refusals.h"
#include "served.h"
#include "status.h"
#include "torch_generator.h"

namespace py = pybind11;

namespace openreg {

namespace {

int device_count() {
  int count = 0;
  check(openreg_device_count(&count));
  return count;
}

int exchange_device(int device) {
  if (device < 0) {
    return -1;
  }
  const int previous = openreg_device_current();
  if (device != previous) {
    check(openreg_device_set_current(device));
  }
  return previous;
}

py::dict stat_to_dict(const openreg_stat &stat) {
  py::dict dict;
  dict["current"] = stat.current;
  dict["peak"] = stat.peak;
  dict["allocated"] = stat.allocated;
  dict["freed"] = stat.freed;
  return dict;
}

py::dict memory_stats(int device) {
  openreg_memory_stats stats;
  check(openreg_memory_get_stats(device, &stats));
  static constexpr std::array<const char *, OPENREG_POOL_KINDS> kinds = {"all", "small_pool",
                                                                         "large_pool"};
  py::dict dict;
#define X(name)                                                                                    \
  {                                                                                                \
    py::dict pools;                                                                                \
    for (size_t kind = 0; kind < kinds.size(); ++kind) {                                           \
      pools[kinds[kind]] = stat_to_dict(stats.name[kind]);                                         \
    }                                                                                              \
    dict[#name] = pools;                                                                           \
  }
  OPENREG_MEMORY_STAT_LIST(X)
#undef X
  // These follow from a limit on splitting, and from several streams that wait for each other.
  dict["oversize_allocations"] = stat_to_dict({});
  dict["oversize_segments"] = stat_to_dict({});
  dict["max_split_size"] = kMaxSplitSize;
  dict["num_sync_all_streams"] = 0;
  dict["num_alloc_retries"] = stats.alloc_retries;
  dict["num_ooms"] = stats.ooms;
  dict["num_device_alloc"] = stats.device_allocs;
  dict["num_device_free"] = stats.device_frees;
  return dict;
}

std::pair<uint64_t, uint64_t> mem_get_info(int device) {
  uint64_t free = 0, total = 0;
  check(openreg_ledger_query(device, &free, &total));
  return {free, total};
}

bool can_device_access_peer(int device, int peer) {
  bool can_access = false;
  check(openreg_device_can_access_peer(device, peer, &can_access));
  return can_access;
}

openreg_device_properties get_device_properties(int device) {
  openreg_device_properties properties;
  check(openreg_device_get_properties(device, &properties));
  return properties;
}

double get_memory_fraction(int device) {
  double fraction = 1;
  check(openreg_memory_get_fraction(device, &fraction));
  return fraction;
}

using AmpPolicy = std::tuple<std::string, std::string, std::string, std::optional<std::string>>;

std::vector<AmpPolicy> amp_policies() {
  size_t count = 0;
  const auto *table = openreg_amp_table(&count);
  std::vector<AmpPolicy> policies;
  for (const auto *entry = table; entry != table + count; ++entry) {
    policies.emplace_back(
        entry->operator_name, entry->overload, openreg_amp_policy_name(entry->policy),
        entry->replacement != nullptr ? std::optional<std::string>(entry->replacement)
                                      : std::nullopt);
  }
  return policies;
}

template <auto Field> auto profile_field(const openreg_device_properties &properties) {
  if constexpr (std::is_array_v<std::remove_reference_t<decltype(properties.profile.*Field)>>) {
    return std::string(properties.profile.*Field);
  } else {
    return properties.profile.*Field;
  }
}

void define_properties(py::module &module) {
  using Properties = openreg_device_properties;
  py::class_<Properties>(module, "_DeviceProperties")
      .def_property_readonly("name", &profile_field<&openreg_profile::name>)
      .def_property_readonly("profile", &profile_field<&openreg_profile::key>)
      .def_property_readonly("major", &profile_field<&openreg_profile::major>)
      .def_property_readonly("minor", &profile_field<&openreg_profile::minor>)
      .def_property_readonly("multi_processor_count",
                             &profile_field<&openreg_profile::multiprocessor_count>)
      .def_property_readonly("max_threads_per_multi_processor",
                             &profile_field<&openreg_profile::max_threads_per_multiprocessor>)
      .def_property_readonly("warp_size", [](const Properties &) { return 32; }) // every NVIDIA GPU
      .def_readonly("total_memory", &Properties::total_memory_bytes)
      .def_readonly("numa_node", &Properties::numa_node)
      .def_property_readonly("cpuset", [](const Properties &p) { return std::string(p.cpuset); })
      .def("__repr__", [](const Properties &p) {
        std::ostringstream text;
        text << "_DeviceProperties(name='" << p.profile.name << "', major=" << p.profile.major
             << ", minor=" << p.profile.minor << ", total_memory=" << p.total_memory_bytes / 1048576
             << "MB, multi_processor_count=" << p.profile.multiprocessor_count
             << ", numa_node=" << p.numa_node << ", cpuset='" << p.cpuset << "')";
        return text.str();
      });
}

} // namespace

PYBIND11_MODULE(_C, module) {
  install_redirecting_allocator();
  register_boxed_kernels();
  register_autocast_kernels();
  register_refusals();

  define_properties(module);
  module.def("initialize", [] { check(openreg_initialize()); });
  module.def("is_initialized", &openreg_is_initialized);
  module.def("in_bad_fork", &openreg_in_bad_fork);
  module.def("device_count", &device_count);
  module.def("current_device", &openreg_device_current);
  module.def("set_device", [](int device) { check(openreg_device_set_current(device)); });
  module.def("exchange_device", &exchange_device);
  module.def("get_device_properties", &get_device_properties);
  module.def("can_device_access_peer", &can_device_access_peer);
  module.def("synchronize", &wait_for_device);
  module.def("shut_down_streams", &openreg_streams_shut_down,
             py::call_guard<py::gil_scoped_release>());
  module.def("queueing_threshold_ns", [] { return queueing_threshold().count(); });
  module.def("set_queueing_threshold_ns",
             [](int64_t ns) { set_queueing_threshold(std::chrono::nanoseconds(ns)); });

  py::class_<Gate>(module, "_Gate")
      .def(py::init<int, int>(), py::call_guard<py::gil_scoped_release>())
      .def("open", &Gate::open);

  module.def("default_generator", &default_generator);

  module.def("mem_get_info", &mem_get_info);
  module.def("memory_stats", &memory_stats);
  module.def("reset_peak_memory_stats",
             [](int device) { check(openreg_memory_reset_peak(device)); });
  module.def("reset_accumulated_memory_stats",
             [](int device) { check(openreg_memory_reset_accumulated(device)); });
  module.def("empty_cache", [] { device_allocator()->emptyCache({0, 0}); });
  module.def("set_memory_fraction", [](int device, double fraction) {
    check(openreg_memory_set_fraction(device, fraction));
  });
  module.def("get_memory_fraction", &get_memory_fraction);

  module.def("amp_policies", &amp_policies);
  module.def("operators", &served_operators);

  module.def("stop_autograd_threads", &stop_autograd_threads,
             py::call_guard<py::gil_scoped_release>());
}

} // namespace openreg
