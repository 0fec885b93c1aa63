// Facts about operators that neither the schema nor the tags have, by operator name. A test checks
// that PyTorch still has every operator that is named here, in nondeterministic.cpp,
// blas_operators.cpp or cuda_dtypes.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace openreg {

// Whether the size of the result depends on the content of the indices if one of them is a mask:
// aten::index.
bool has_data_dependent_size(std::string_view name);

// Whether PyTorch tags an operator as random although it draws no random numbers.
bool has_stale_rng_tag(std::string_view name);

// Whether the size of the result depends on numbers: arange, range.
bool size_depends_on_numbers(std::string_view name);

// Whether an operator copies a composite tensor between any two devices, or a device and the host.
bool copies_composites(std::string_view name);

// Returns the index of the result that is a CPU tensor for arguments on any device, or -1.
int host_result(std::string_view name);

// Whether an operator writes to all of its first argument without reading it, such as zero_.
bool overwrites_first_argument(std::string_view name);

// For an operator that counts values in bins: the name of the argument with the number of bins.
// Empty for other operators.
std::string_view bins_argument(std::string_view name);

// Which arguments may be on the host although the operator runs on a device, as on CUDA.
enum class HostArguments {
  kNothing,
  kScalars, // CPU tensors of no dimensions
  kNumbers, // CPU tensors of one element
  kTensors, // CPU tensors in some arguments, such as indices or lengths
};

// Looks only at the name. Operators that are tagged pointwise take scalars as well.
HostArguments host_arguments(std::string_view name, std::string_view overload);

// Whether CUDA's kernel of an operator refuses CPU tensors without dimensions in the argument of
// this index, although it takes them in another: addcmul.
bool refuses_host_scalar(std::string_view name, size_t argument);

// The mode of an embedding bag that takes the maximum of each bag.
inline constexpr int64_t kBagMaximum = 2;

// Composites that fail on device tensors, because they check the device or call CPU kernels
// directly. Boxed launches run them on twins.
inline constexpr std::array<const char *, 2> kLaunchedComposites = {
    "aten::conj_physical_",
    "aten::mode.values",
};

// Whether the CPU has an operator that CUDA lacks. `name` is without overload.
bool is_absent_on_cuda(std::string_view name);

// Whether CUDA's wrapper of a pointwise operator or its in-place form checks that all tensors are
// on one device. Such an operator takes no number on the host, and the error names the argument.
bool is_checked_on_cuda(std::string_view name);

// Whether CUDA's error for tensors on several devices names no argument, although the operator is
// not pointwise.
bool leaves_argument_unnamed(std::string_view name);

// Whether CUDA waits for values of the first argument, which the CPU need not do.
bool waits_on_cuda(std::string_view name);

// Returns every name in these files, without overload.
std::vector<std::string_view> operators_known_by_name();

} // namespace openreg
