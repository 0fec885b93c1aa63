// Python's interface to dry runs. Conversions only.

#include "python/bind.h"

#include <utility>

#include "launch/dry_host.h"
#include "tensor/known_scope.h"
#include "tensor/known_values.h"

namespace py = pybind11;

namespace openreg {

namespace {

void start(size_t known_bytes, bool routes_evenly, py::object record_read) {
  auto *const record =
      new py::object(std::move(record_read)); // at exit there may be no interpreter
  start_dry_run({.known_bytes = known_bytes,
                 .record_read =
                     [record](const char *operator_name, const std::string &value) {
                       const py::gil_scoped_acquire gil;
                       (*record)(operator_name, value);
                     },
                 .routes_evenly = routes_evenly});
  register_dry_host_kernels();
}

py::object call_in_known_scope(const py::function &function, const py::args &arguments,
                               const py::kwargs &keywords) {
  const KnownScope scope;
  return function(*arguments, **keywords);
}

} // namespace

void define_dry(py::module &module) {
  module.def("start_dry_run", &start);
  module.def("is_dry", &is_dry);
  module.def("is_known", &is_known);
  module.def("call_in_known_scope", &call_in_known_scope);
}

} // namespace openreg
