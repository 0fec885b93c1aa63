// Registers the accelerator hooks.
#pragma once

namespace openreg {

// Initializes the devices; later calls do nothing. Thread-safe. Raises RuntimeError for an invalid
// configuration.
void initialize_devices();

// Call it once, when the extension is loaded.
void register_hooks();

} // namespace openreg
