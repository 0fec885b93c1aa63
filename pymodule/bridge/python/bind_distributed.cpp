#include "python/bind.h"

#include <pybind11/chrono.h>

#include "distributed/communicator.h"
#include "distributed/gloo/device_gloo.h"
#include "distributed/gloo/represented_gloo.h"
#include "distributed/nccl_memory.h"
#include "distributed/symmetric/memory.h"
#include "distributed/ddp_timer.h"
#include "python/held_without_gil.h"

namespace py = pybind11;

namespace openreg {

namespace {

constexpr auto kDefaultTimeout = kBackendDefaultTimeout;

// Python must know PyTorch's own class first. In CUDA mode this module is loaded before torch._C,
// so a later call defines the class.
void define_gloo(const py::module &module) {
  using Options = c10d::ProcessGroupGloo::Options;
  py::class_<DeviceGloo, c10d::ProcessGroupGloo, HeldWithoutGil<DeviceGloo>>(module,
                                                                             "ProcessGroupGloo")
      .def(py::init([](const DeviceGloo::StorePtr &store, int rank, int size,
                       c10::intrusive_ptr<Options> options) {
             return c10::make_intrusive<DeviceGloo>(store, rank, size, std::move(options));
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"),
           py::call_guard<py::gil_scoped_release>())
      .def(py::init([](const DeviceGloo::StorePtr &store, int rank, int size,
                       std::chrono::milliseconds timeout, bool enable_reconfigure) {
             auto options = Options::create_default(timeout);
             set_reconfigurable(*options, enable_reconfigure);
             return c10::make_intrusive<DeviceGloo>(store, rank, size, std::move(options));
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout") = kDefaultTimeout,
           py::arg("enable_reconfigure") = false, py::call_guard<py::gil_scoped_release>());
  py::class_<RepresentedGloo, c10d::Backend, c10::intrusive_ptr<RepresentedGloo>>(module,
                                                                                  "RepresentedGloo")
      .def(py::init(
          [](const py::object & /*store*/, int rank, int size, const py::args &,
             const py::kwargs &) { return c10::make_intrusive<RepresentedGloo>(rank, size); }))
      .def_property_readonly("options", &RepresentedGloo::getBackendOptions);
}

} // namespace

void define_distributed(py::module &module) {
  module.def("define_gloo", [module] { define_gloo(module); });
  module.def("define_occl", [module] { define_occl(module); });
  module.def(
      "abort_communicators",
      [] {
        abort_signals();
        abort_communicators();
      },
      py::call_guard<py::gil_scoped_release>());
  module.def("finish_gloo", &DeviceGloo::finish_all, py::call_guard<py::gil_scoped_release>());
  module.def("estimate_nccl_memory", &estimate_nccl_memory);
  define_nccl(module);
  register_symmetric_memory();
  module.def("symmetric_memory_source", &symmetric_memory_source);
  register_ddp_timer();
}

} // namespace openreg
