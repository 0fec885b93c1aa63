// Python's interface to memory plans. Conversions only.

#include "python/bind.h"

#include <torch/csrc/jit/python/pybind_utils.h>

#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "core/status.h"
#include "launch/map_tensors.h"
#include "launch/memory_plan.h"

namespace py = pybind11;

namespace openreg {

namespace {

// Never destroyed: at exit there may be no interpreter left.
using Callable = std::shared_ptr<py::object>;

Callable keep(py::object callable) {
  return {new py::object(std::move(callable)), [](py::object *) {}};
}

// Stands for the tensors of a call in Python. A tensor that has been seen in Python, and a storage,
// keeps its Python object, which counts as a reference. Autograd then adds gradients out of place.
class StandIns {
public:
  c10::IValue in(const c10::IValue &value) {
    return map_tensors(value, [this](const at::Tensor &tensor) { return of(tensor); });
  }

private:
  // The same tensor twice has the same stand-in twice.
  at::Tensor of(const at::Tensor &tensor) {
    auto *impl = tensor.unsafeGetTensorImpl();
    if (!tensor.defined()) {
      return tensor;
    }
    auto &made = made_[impl];
    if (!made.defined()) {
      made = at::Tensor(impl->shallow_copy_and_detach(c10::VariableVersion(0),
                                                      /*allow_tensor_metadata_change=*/true));
      if (tensor.requires_grad() && tensor.is_leaf()) {
        made.set_requires_grad(true);
      }
    }
    return made;
  }

  std::unordered_map<const c10::TensorImpl *, at::Tensor> made_;
};

// The number of a tensor's storage, and the storage's bytes.
std::pair<uintptr_t, size_t> storage_of(const at::Tensor &tensor) {
  const auto &storage = tensor.storage();
  return {reinterpret_cast<uintptr_t>(storage.unsafeGetStorageImpl()), storage.nbytes()};
}

std::optional<MemoryPlan> ask(const py::object &planner, const c10::OperatorHandle &op,
                              const torch::jit::Stack &arguments) {
  py::list given;
  py::dict named;
  StandIns stand_ins;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto &argument = op.schema().arguments()[i];
    auto value = torch::jit::toPyObject(stand_ins.in(arguments[i]));
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
  using Answer = std::tuple<std::vector<int64_t>, std::vector<int64_t>, std::string>;
  auto [events, results, source] = answer.cast<Answer>();
  return MemoryPlan{.events = std::move(events),
                    .results = std::move(results),
                    .source = source == "builtin" ? PlanSource::kBuiltin : PlanSource::kPlanner};
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

py::dict planned_launches(int device) {
  const auto [none, planner, builtin, elementwise] = count_launches(device_index(device));
  using namespace py::literals;
  return py::dict("planner"_a = planner, "builtin"_a = builtin, "elementwise"_a = elementwise,
                  "none"_a = none);
}

} // namespace

void define_plans(py::module &module) {
  module.def("set_memory_planner", &set_python_planner);
  module.def("has_memory_planner", &has_planner);
  module.def("planned_launches", &planned_launches);
  module.def("storage_of", &storage_of);
}

} // namespace openreg
