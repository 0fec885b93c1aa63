// Where in a program the forward of a backward was.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>

namespace openreg {

// Of an operator that is called at `place`.
void note_forward(const at::RecordFunction &function, uint64_t place);

// Of a function of a backward; 0: it is not known, or was long ago.
uint64_t forward_of(const at::RecordFunction &function);

} // namespace openreg
