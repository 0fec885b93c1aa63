// Registers the timer with which DistributedDataParallel measures steps on devices.
#pragma once

namespace openreg {

void register_ddp_timer();

} // namespace openreg
