#include "python/bind_distributed.h"

#include <pybind11/chrono.h>

#include "distributed/communicator.h"
#include "distributed/gloo/gloo.h"
#include "distributed/symmetric/memory.h"
#include "distributed/timer.h"
#include "python/held_without_gil.h"
#include "python/bind_nccl.h"
#include "python/bind_occl.h"

namespace py = pybind11;

namespace openreg {

namespace {

constexpr auto kDefaultTimeout = kBackendDefaultTimeout;

// PyTorch's own class must be known to Python before: it is not when this module is loaded before
// torch._C, in CUDA mode.
void define_gloo(const py::module &module) {
  using Options = c10d::ProcessGroupGloo::Options;
  py::class_<Gloo, c10d::ProcessGroupGloo, HeldWithoutGil<Gloo>>(module, "ProcessGroupGloo")
      .def(py::init([](const Gloo::StorePtr &store, int rank, int size,
                       c10::intrusive_ptr<Options> options) {
             return c10::make_intrusive<Gloo>(store, rank, size, std::move(options));
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"),
           py::call_guard<py::gil_scoped_release>())
      .def(py::init([](const Gloo::StorePtr &store, int rank, int size,
                       std::chrono::milliseconds timeout) {
             return c10::make_intrusive<Gloo>(store, rank, size, Options::create_default(timeout));
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout") = kDefaultTimeout,
           py::call_guard<py::gil_scoped_release>());
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
  module.def("finish_gloo", &Gloo::finish_all, py::call_guard<py::gil_scoped_release>());
  define_nccl(module);
  register_symmetric_memory();
  module.def("symmetric_memory_source", &symmetric_memory_source);
  register_timer();
}

} // namespace openreg
