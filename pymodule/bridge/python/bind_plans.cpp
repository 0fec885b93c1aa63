// Python's interface to memory plans. Conversions only.

#include "python/bind.h"

#include <torch/csrc/jit/python/pybind_utils.h>

#include <memory>
#include <utility>

#include "launch/memory_plan.h"

namespace py = pybind11;

namespace openreg {

namespace {

// Never destroyed: at exit there may be no interpreter left.
using Callable = std::shared_ptr<py::object>;

Callable keep(py::object callable) {
  return {new py::object(std::move(callable)), [](py::object *) {}};
}

std::optional<MemoryPlan> ask(const py::object &planner, const c10::OperatorHandle &op,
                              const torch::jit::Stack &arguments) {
  py::list given;
  py::dict named;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto &argument = op.schema().arguments()[i];
    auto value = torch::jit::toPyObject(arguments[i]);
    if (argument.kwarg_only()) {
      named[py::str(argument.name())] = std::move(value);
    } else {
      given.append(std::move(value));
    }
  }
  const py::object answer = planner(c10::toString(op.operator_name()), given, named);
  if (answer.is_none()) {
    return std::nullopt;
  }
  auto [events, results] = answer.cast<std::pair<std::vector<int64_t>, std::vector<int64_t>>>();
  return MemoryPlan{.events = std::move(events), .results = std::move(results)};
}

void set_python_planner(const py::object &callable) {
  if (callable.is_none()) {
    set_planner({});
    return;
  }
  set_planner([planner = keep(callable)](const c10::OperatorHandle &op,
                                         const torch::jit::Stack &arguments) {
    const py::gil_scoped_acquire gil;
    return ask(*planner, op, arguments);
  });
}

} // namespace

void define_plans(py::module &module) {
  module.def("set_memory_planner", &set_python_planner);
}

} // namespace openreg
