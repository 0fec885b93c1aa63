#pragma once

#include <torch/csrc/utils/pybind.h>

namespace openreg {

// Collectives among devices of one process: what torch_openreg.cuda.nccl makes the functions of
// `torch._C` of that torch.cuda.nccl calls.
void define_nccl(pybind11::module &module);

} // namespace openreg
