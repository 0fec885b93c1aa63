// What is known of operators by their names alone, because neither schema nor tags say it. A test
// asks whether PyTorch still has every operator that is named here, in nondeterministic.cpp,
// blas_operators.cpp or cuda_dtypes.cpp.
#pragma once

#include <array>
#include <string_view>
#include <vector>

namespace openreg {

// How many elements aten::index takes depends on what is in its indices, if one is a mask.
bool takes_by_indices(std::string_view name);

// Whether an operator is tagged as one that draws random numbers and draws none.
bool only_seems_to_draw(std::string_view name);

// Whether results are as long as the operator's numbers say.
bool counts_by_numbers(std::string_view name);

// Whether an operator copies a sparse or such tensor between any two devices, the host among them.
bool copies_composites(std::string_view name);

// Which result is a CPU tensor by contract, wherever the arguments are; -1: none.
int host_result(std::string_view name);

// What an operator takes from host memory although it runs on a device, as on CUDA.
enum class HostArguments {
  kNothing,
  kScalars, // CPU tensors of no dimensions
  kTensors, // CPU tensors in some arguments: indices, lengths
};

// As far as names say it: operators that are tagged pointwise take scalars as well.
HostArguments host_arguments(std::string_view name, std::string_view overload);

// Composites that work on a CPU tensor and not on a device's, because they look at the device or
// call kernels of the CPU directly. A launch gives them twins.
inline constexpr std::array<const char *, 2> kLaunchedComposites = {
    "aten::conj_physical_",
    "aten::mode.values",
};

// Operators that the CPU has and CUDA has not, by their names without overload.
bool is_absent_on_cuda(std::string_view name);

// Every name above and in those files, without overload.
std::vector<std::string_view> operators_known_by_name();

} // namespace openreg
