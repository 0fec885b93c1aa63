// Kernels on the host in a dry run (tensor/known_values.h).
//
// Models are often made, loaded or converted on the host, and optimizers may run there. Their
// kernels would write tensors of the size of the model. So kernels of the CPU that compute floating
// point numbers from more than known_host_bytes() do not run. Their results are zero, unknown, and
// without memory of the machine (memory/allocation/host_blocks.h). Integers and booleans are
// computed at any size if their inputs are known, because data sets and random orders must be true.
//
// What is unknown of the host:
//   - what a skipped kernel would have written;
//   - what a kernel computes from unknown values, which are zeros;
//   - large copies of unknown values from a device (operators/copy.cpp).
// If unknown values are written to memory of another kind, such as pinned memory, that counts as a
// read of the program.
//
// Kernels that a launch calls on twins, or that call others, are not concerned.
#pragma once

#include <cstddef>

namespace openreg {

// DryRun::known_bytes, but at least 1 MiB: optimizers count their steps on the host.
size_t known_host_bytes();

// Call this once, when a dry run starts and PyTorch's operators are registered.
void register_dry_host_kernels();

} // namespace openreg
