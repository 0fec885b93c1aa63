// What a backward would run. The names of the node's types, and the headers that declare them, are
// not part of PyTorch's interface for backends.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

namespace openreg {

// Returns whether backward from `roots` may run on the calling thread, because neither the program
// nor its tools could tell it from the device's thread, which PyTorch would use. So it is one
// device's work, in few nodes, and
// - PyTorch or openreg wrote each node, or PyTorch's compiler did;
// - no hook and no tensor subclass would run the program's code;
// - nothing observes operators: no profiler, sanitizer or record of memory;
// - this thread allocates as any other, not in a memory pool, and it captures no graph;
// - OPENREG_GPU_OVERHEAD=1 does not count the memory that each thread has for cuBLAS.
// Hooks of saved tensors cannot be seen here. Called with the GIL.
bool may_use_calling_thread(c10::ArrayRef<at::Tensor> roots);

} // namespace openreg
