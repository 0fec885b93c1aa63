// Snapshots of device memory as Python objects, in the format of torch.cuda.memory._snapshot.
// PyTorch's tools read it (torch.cuda._memory_viz, pytorch.org/memory_viz).
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace openreg {

// Returns a snapshot of all devices; of one pool only if `mempool` is not 0. The segments of each
// device are consistent with each other. The traces may contain later events of other threads.
pybind11::dict memory_snapshot(uint64_t mempool, bool include_traces);

// Returns the frames of the stack that allocated the block at a device address. None if no block
// starts there, or its stack was not recorded.
pybind11::object allocation_traceback(uintptr_t address);

} // namespace openreg
