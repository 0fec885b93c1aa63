// Compiled kernels' part of torch_openreg._C: functions that a compiler made of a program, called
// by their addresses, as launches.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace openreg {

void define_compile(pybind11::module &module);

} // namespace openreg
