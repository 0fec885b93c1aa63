#pragma once

namespace openreg {

// Tells PyTorch of everything that the bridge has. Called once, when the extension is loaded.
void register_with_pytorch();

} // namespace openreg
