// Shows the devices in torch.profiler, through Kineto's interface for accelerators.
#pragma once

namespace openreg {

// Call it once, when the extension is loaded.
void register_kineto_profiler();

// Pauses or resumes the recording of device activity. Work that was submitted before is completed
// first.
void collect_device_activity(bool collect);

} // namespace openreg
