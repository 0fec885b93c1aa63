// PYTORCH_ALLOC_CONF. PyTorch parses the settings that all accelerators share, this file parses
// CUDA's own, and passes both to the allocator.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

namespace openreg {

// Reads PYTORCH_CUDA_ALLOC_CONF, or else PYTORCH_ALLOC_CONF, and registers for later changes with
// PyTorch. require_allocator_settings raises a mistake in the environment.
void install_allocator_settings();

extern bool allocator_settings_are_invalid;
[[noreturn]] void raise_invalid_allocator_settings();

// Raises a mistake in the environment's settings. Call it before memory is used.
inline void require_allocator_settings() {
  if (allocator_settings_are_invalid) [[unlikely]] {
    raise_invalid_allocator_settings();
  }
}

// Does what torch.cuda.memory._set_allocator_settings does. Settings before a mistake take effect.
void set_allocator_settings(const std::string &settings);

// Do what torch.cuda.caching_allocator_enable and is_enabled do.
void enable_cache(bool enabled);
bool cache_is_enabled();

// Returns the settings as snapshots contain them.
pybind11::dict allocator_settings();

} // namespace openreg
