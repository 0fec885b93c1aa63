#pragma once

namespace openreg {

// The first use of a device, if it is the first. Any thread.
void initialize_devices();

// Called once, when the extension is loaded.
void register_hooks();

} // namespace openreg
