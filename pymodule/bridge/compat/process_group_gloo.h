// PyTorch's Gloo process group, for classes that derive from it. PyTorch compiles its own sources
// with this macro, and its headers use it for nothing else.
#pragma once

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/version.h>

namespace openreg {

// Lets the group wait for `reconfigure` before it connects. PyTorch can do this since 2.14.
inline void set_reconfigurable([[maybe_unused]] c10d::Backend::Options &options, bool enabled) {
#if TORCH_VERSION_MINOR >= 14
  options.enable_reconfigure = enabled;
#else
  TORCH_CHECK_NOT_IMPLEMENTED(!enabled, "enable_reconfigure needs PyTorch 2.14 or newer");
#endif
}

} // namespace openreg

// The name of the all-to-all of one tensor per rank that the group implements. Since 2.14 the old
// name only forwards to the new one, so an override of it would not see all calls.
#if TORCH_VERSION_MINOR >= 14
#define OPENREG_GLOO_ALL_TO_ALL all_to_all_single
#else
#define OPENREG_GLOO_ALL_TO_ALL alltoall_base
#endif
