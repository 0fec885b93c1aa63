// A kernel behind the check that a sparse tensor is coalesced.
#pragma once

namespace openreg {

// Call it once, when the extension is loaded.
void register_sparse_indices();

} // namespace openreg
