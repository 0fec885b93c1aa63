// What the stubs of the stand-in libraries do when they are called.
#pragma once

namespace openreg {

// Raises RuntimeError with the demangled name of a function that openreg does not simulate.
[[noreturn]] __attribute__((visibility("hidden"))) void refuse(const char *symbol);

} // namespace openreg
