// Which node of autograd's graph runs on the calling thread. The headers that declare this are not
// part of PyTorch's interface for backends.
#pragma once

#include <cstdint>
#include <string>

namespace openreg {

// Returns whether the calling thread computes gradients.
bool is_in_backward();

// Returns the sequence number of the node that runs on the calling thread, or -1 if none does. Sets
// `name` to its name, such as "MmBackward0", unless `name` is null.
int64_t running_autograd_node(std::string *name);

} // namespace openreg
