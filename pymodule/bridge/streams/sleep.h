// torch.cuda._sleep and at::cuda::sleep.
#pragma once

#include <cstdint>

namespace openreg {

// Queues work on the current stream of the current device that takes as long as `cycles` of a
// GPU's clock. A negative number counts as 0.
void sleep_on_current_stream(int64_t cycles);

} // namespace openreg
