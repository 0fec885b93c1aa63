// Stops autograd's device threads at exit.
#pragma once

namespace openreg {

// Stops autograd's device threads and waits until they have ended, for at most 5 s. Call it once,
// at interpreter exit, without the GIL.
void stop_autograd_threads();

} // namespace openreg
