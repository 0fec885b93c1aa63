#pragma once

#include <torch/csrc/utils/pybind.h>

namespace openreg {

// ProcessGroupOCCL, in CUDA mode ProcessGroupNCCL, and what its options are.
void define_occl(const pybind11::module &module);

} // namespace openreg
