// torch_openreg._C: the Python package's interface to the bridge. Conversions only.

#include <ATen/Context.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "allocator/allocator.h"
#include "compat/autograd_graph.h"
#include "compat/autograd_threads.h"
#include "compat/operator_names.h"
#include "core/unsupported.h"
#include "core/status.h"
#include "launch/boxed.h"
#include "launch/kernel_registry.h"
#include "launch/policy.h"
#include "memory/observation/debug_memory.h"
#include "registration/hooks.h"
#include "python/bind.h"
#include "registration/registration.h"
#include "operators/autocast.h"
#include "operators/random/torch_generator.h"
#include "profiler/host_wait.h"
#include "profiler/kineto.h"
#include "streams/observer.h"
#include "streams/sync_debug.h"
#include "streams/inline_guard.h"
#include "testing/gate.h"
#include "testing/reserved_memory.h"

namespace py = pybind11;

namespace openreg {

namespace {

int device_count() {
  int count = 0;
  check(openreg_device_count(&count));
  return count;
}

// As on CUDA, setting the current device creates a context on it. maybe_exchange_device(), which
// restores the previous device, does not.
void set_device(int device) {
  check(openreg_device_create_context(device));
  check(openreg_device_set_current(device));
}

int exchange_device(int device) {
  const int previous = openreg_device_current();
  if (device >= 0) {
    set_device(device);
  }
  return device < 0 ? -1 : previous;
}

int maybe_exchange_device(int device) {
  const int previous = openreg_device_current();
  if (device >= 0 && device != previous) {
    check(openreg_device_set_current(device));
  }
  return device < 0 ? -1 : previous;
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

bool may_use_calling_thread_of(const py::tuple &roots) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(roots.size());
  for (const auto &root : roots) {
    if (!THPVariable_Check(root.ptr())) { // an edge of autograd's graph
      return false;
    }
    tensors.push_back(THPVariable_Unpack(root.ptr()));
  }
  return may_use_calling_thread(tensors);
}

using AutocastTuple = std::tuple<std::string, std::string, std::string, std::optional<std::string>>;

std::vector<AutocastTuple> autocast_policies() {
  std::vector<AutocastTuple> policies;
  for (const auto &row : autocast_rows()) {
    policies.emplace_back(row.operator_name, row.overload, name_of(row.policy), row.replacement);
  }
  return policies;
}

} // namespace

PYBIND11_MODULE(_C, module) {
  register_with_pytorch();

  define_properties(module);
  module.def("initialize", [] {
    at::globalContext().lazyInitDevice(kDeviceType); // is_pinned() asks whether it was called
    initialize_devices();
  });
  module.def("is_initialized", &openreg_is_initialized);
  module.def("in_bad_fork", &openreg_in_bad_fork);
  module.def("has_context", &openreg_device_has_context);
  module.def("device_count", &device_count);
  module.def("current_device", &openreg_device_current);
  module.def("set_device", &set_device);
  module.def("exchange_device", &exchange_device);
  module.def("maybe_exchange_device", &maybe_exchange_device);
  module.def("get_device_properties", &get_device_properties);
  module.def("can_device_access_peer", &can_device_access_peer);
  module.def("synchronize", [](int device) {
    check(openreg_device_create_context(device));
    notify_observers(
        [index = device_index(device)](Observer &observer) { observer.synchronize(index); });
    const HostWait wait(Awaited::kDevice, device_index(device));
    wait_for_device(device_index(device));
    check_memory_damage(device);
  });
  module.def("sync_debug_mode", [] { return static_cast<int>(sync_debug_mode.load()); });
  module.def("set_sync_debug_mode",
             [](int mode) { sync_debug_mode.store(static_cast<SyncDebugMode>(mode)); });
  module.def("collect_device_activity", &collect_device_activity);
  module.def("shut_down_streams", &openreg_streams_shut_down,
             py::call_guard<py::gil_scoped_release>());
  module.def("queues_everything", &queues_everything);
  module.def("launches_queued_by_thread", [] { return launches_queued_by_thread; });
  module.def("set_queues_everything", &set_queues_everything);

  py::class_<Gate>(module, "_Gate")
      .def(py::init<int, int>(), py::call_guard<py::gil_scoped_release>())
      .def("open", &Gate::open);
  py::class_<ReservedMemory>(module, "_OfferedMemory")
      .def(py::init<const at::Tensor &>())
      .def("allocate", &ReservedMemory::allocate)
      .def_static("free", &ReservedMemory::free)
      .def_property_readonly("is_held", &ReservedMemory::is_held);
  module.def("_misplaced_allocations", &misplaced_allocations);

  module.def("default_generator", &default_generator);

  define_compile(module);
  define_dry(module);
  define_memory(module);
  define_plans(module);
  define_pools(module);
  define_sanitizer(module);
  define_streams(module);
  define_graphs(module);
  define_trees(module);

  define_ipc(module);

  define_ledger(module);

#ifndef OPENREG_WITHOUT_GLOO
  define_distributed(module);
#endif

  module.def("autocast_policies", &autocast_policies);
  module.def("operators", &registered_operators);
  module.def("replace_cuda_kernel", &replace_cuda_kernel);
  module.def("operators_known_by_name", &operators_known_by_name);

  module.def("may_use_calling_thread", &may_use_calling_thread_of);
  module.def("stop_autograd_threads", &stop_autograd_threads,
             py::call_guard<py::gil_scoped_release>());
}

} // namespace openreg
