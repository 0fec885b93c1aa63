// What differs between releases in the choice and in the results of CUDA's attention kernels.
#pragma once

#include <torch/version.h>

namespace openreg {

// Whether heads of queries may share one of keys in the memory-efficient kernel.
inline constexpr bool kEfficientSharesHeads = TORCH_VERSION_MINOR >= 14;

// Whether the memory-efficient kernel returns the position of dropout's words on the device if
// there is no dropout.
inline constexpr bool kUnusedPositionOnDevice = TORCH_VERSION_MINOR >= 14;

} // namespace openreg
