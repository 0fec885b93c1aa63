#pragma once

namespace openreg {

// Call it once, when the extension is loaded.
void register_profiler();

} // namespace openreg
