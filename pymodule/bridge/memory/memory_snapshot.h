// Snapshots of device memory as Python objects, in the format of torch.cuda.memory._snapshot, which
// PyTorch's tools read (torch.cuda._memory_viz, pytorch.org/memory_viz).
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace openreg {

// Of all devices; of one pool only, when `mempool` is not 0. Each device's segments are consistent
// in themselves; what other threads do meanwhile may be in the traces and not in the segments.
pybind11::dict memory_snapshot(uint64_t mempool, bool include_traces);

// The frames of the stack with which the block at a device address was allocated; None when no
// block begins there, or its stack was not recorded.
pybind11::object allocation_traceback(uintptr_t address);

} // namespace openreg
