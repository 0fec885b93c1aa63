// PYTORCH_ALLOC_CONF: PyTorch parses what is common to all accelerators, this file what is CUDA's
// own, and the allocator is told what follows.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

namespace openreg {

// Takes the settings of the environment, PYTORCH_CUDA_ALLOC_CONF or else PYTORCH_ALLOC_CONF, and
// has PyTorch tell of others. A mistake in them is raised by require_allocator_settings.
void install_allocator_settings();

extern bool allocator_settings_are_refused;
[[noreturn]] void raise_refused_allocator_settings();

// Raises what was wrong in the environment, before memory is used.
inline void require_allocator_settings() {
  if (allocator_settings_are_refused) [[unlikely]] {
    raise_refused_allocator_settings();
  }
}

// What torch.cuda.memory._set_allocator_settings does. What came before a mistake is in force.
void set_allocator_settings(const std::string &settings);

// What torch.cuda.caching_allocator_enable does.
void enable_cache(bool enabled);
bool cache_is_enabled();

// As snapshots have them.
pybind11::dict allocator_settings();

} // namespace openreg
