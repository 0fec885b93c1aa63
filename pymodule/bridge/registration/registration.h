// Registers the backend with PyTorch.
#pragma once

namespace openreg {

// Call it once, when the extension is loaded.
void register_with_pytorch();

} // namespace openreg
