// OPENREG_DEBUG_MEMORY=1: what the allocator finds broken is told with the Python stack of the
// allocation, and looked for whenever a device is waited for, and at exit.
#pragma once

namespace openreg {

// To be called when the bridge is loaded. Reads no configuration: that may still change.
void install_debug_memory();

// Raises what was found, now or before. Does nothing without the variable.
void look_for_damage(int device);

// For the end of the process: looks at all devices; what is found is written to stderr.
void look_for_damage_at_exit();

} // namespace openreg
