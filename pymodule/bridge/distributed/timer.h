#pragma once

namespace openreg {

void register_timer();

} // namespace openreg
