// The part of torch_openreg._C that sends storages and events to other processes. Conversions only.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace openreg {

void define_ipc(pybind11::module &module);

} // namespace openreg
