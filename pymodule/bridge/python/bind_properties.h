// Properties of devices, in torch_openreg._C.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace openreg {

void define_properties(pybind11::module &module);

} // namespace openreg
