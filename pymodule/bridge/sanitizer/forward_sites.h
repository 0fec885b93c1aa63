// The call site of the forward that belongs to a backward.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>

namespace openreg {

// Records that an operator was called at `call_site`.
void record_forward(const at::RecordFunction &function, uint64_t call_site);

// Returns the call site of the forward of an autograd function. 0: not known, or too long ago.
uint64_t forward_call_site_of(const at::RecordFunction &function);

} // namespace openreg
