#pragma once

namespace openreg {

// Called once, when the extension is loaded.
void register_sparse_indices();

} // namespace openreg
