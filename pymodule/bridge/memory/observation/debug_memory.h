// OPENREG_DEBUG_MEMORY=1: reports damage with the Python stack of the allocation. The bridge checks
// memory whenever a device is synchronized, and at exit.
#pragma once

namespace openreg {

// Call when the bridge is loaded. Does not read the configuration, which may still change.
void install_debug_stacks();

// Raises damage that was found now or earlier. Does nothing without the variable.
void check_memory_damage(int device);

// For the end of the process: checks all devices, and writes damage to stderr.
void check_memory_damage_at_exit();

} // namespace openreg
