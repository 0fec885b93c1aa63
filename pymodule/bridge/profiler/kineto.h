// The devices in torch.profiler: Kineto's interface for accelerators.
#pragma once

namespace openreg {

// Called once, when the extension is loaded.
void register_kineto_profiler();

// Leaves out of the profile what the devices do, or goes on. What they were given before is done.
void collect_device_activity(bool collect);

} // namespace openreg
