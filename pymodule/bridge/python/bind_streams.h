// Streams' part of torch_openreg._C: what torch.cuda asks of them by their numbers.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace openreg {

void define_streams(pybind11::module &module);

} // namespace openreg
