// The names of kernels in errors such as `"mul_cuda" not implemented for 'Half'`.
#pragma once

#include <string>
#include <string_view>

namespace openreg {

// Returns the name of CUDA's kernel for that of the CPU's, both as in such errors. Returns other
// names as they are. In openreg mode "cuda" in it becomes "openreg".
std::string cuda_kernel_name(std::string_view cpu_name);

// Returns a name of CUDA's kernel as errors of this mode have it.
std::string kernel_name_of_mode(std::string name);

// Call this in a handler of `catch (...)`. Throws the exception again, with the name of CUDA's
// kernel if it is such an error of a CPU kernel.
[[noreturn]] void rethrow_with_cuda_names();

} // namespace openreg
