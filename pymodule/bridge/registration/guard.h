#pragma once

namespace openreg {

// Called once, when the extension is loaded.
void register_guard();

} // namespace openreg
