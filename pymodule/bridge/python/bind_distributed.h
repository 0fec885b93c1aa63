#pragma once

#include <torch/csrc/utils/pybind.h>

namespace openreg {

void define_distributed(pybind11::module &module);

} // namespace openreg
