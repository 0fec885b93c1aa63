// The devices in torch.profiler: Kineto's interface for accelerators.
#pragma once

namespace openreg {

// Called once, when the extension is loaded.
void register_kineto_profiler();

} // namespace openreg
