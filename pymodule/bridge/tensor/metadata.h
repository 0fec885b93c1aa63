// Serialization of tensor metadata.
#pragma once

namespace openreg {

// Call it once, when the extension is loaded.
void register_metadata();

} // namespace openreg
