// The ledger's part of torch_openreg._C.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace openreg {

void define_ledger(pybind11::module &module);

} // namespace openreg
