#pragma once

namespace openreg {

// Ends autograd's device threads and waits until they are gone. To be called once, at interpreter
// exit, without the GIL.
void stop_autograd_threads();

} // namespace openreg
