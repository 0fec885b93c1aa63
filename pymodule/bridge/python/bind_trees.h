// What PyTorch's trees of graphs ask of storages: a part of torch_openreg._C.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace openreg {

void define_trees(pybind11::module &module);

} // namespace openreg
