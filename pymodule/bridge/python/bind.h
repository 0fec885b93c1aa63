// The parts of torch_openreg._C. Each define_* function adds its names to the module and is
// implemented in the file of the same name: define_memory in bind_memory.cpp.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace openreg {

void define_compile(pybind11::module &module);    // compiled kernels, called by address
void define_dry(pybind11::module &module);        // dry runs
void define_graphs(pybind11::module &module);     // torch.cuda.CUDAGraph
void define_ipc(pybind11::module &module);        // storages and events of other processes
void define_ledger(pybind11::module &module);     // what `openreg smi` shows
void define_memory(pybind11::module &module);     // statistics, cache, history
void define_plans(pybind11::module &module);      // memory plans
void define_pools(pybind11::module &module);      // memory pools and pluggable allocators
void define_properties(pybind11::module &module); // device properties
void define_sanitizer(pybind11::module &module);
void define_streams(pybind11::module &module); // streams and events by number
void define_trees(pybind11::module &module);   // what Inductor's CUDA graph trees need

// Only in builds with distributed support. define_distributed() calls define_nccl() and exports
// define_occl() to Python.
void define_distributed(pybind11::module &module);
void define_nccl(pybind11::module &module);       // collectives between devices of one process
void define_occl(const pybind11::module &module); // ProcessGroupOCCL; ProcessGroupNCCL in CUDA mode

} // namespace openreg
