#include "streams/gpu_trace.h"

#include <torch/csrc/utils/pybind.h>

namespace openreg {

struct KeptPythonError::State {
  pybind11::gil_scoped_acquire gil;
  pybind11::error_scope error;
};

KeptPythonError::KeptPythonError() : state_(std::make_unique<State>()) {}

KeptPythonError::~KeptPythonError() = default;

} // namespace openreg
