// Registers the device guard.
#pragma once

namespace openreg {

// Call it once, when the extension is loaded.
void register_guard();

} // namespace openreg
