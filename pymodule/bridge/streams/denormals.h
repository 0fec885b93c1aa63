// A thread's denormal mode, as torch.set_flush_denormal() sets it. A queued kernel runs with the
// mode of the thread that launched it.
#pragma once

#include "base/denormals.h"

namespace openreg {

inline unsigned denormal_mode() {
  return openreg_denormal_mode();
}

inline void set_denormal_mode(unsigned mode) {
  openreg_set_denormal_mode(mode);
}

} // namespace openreg
