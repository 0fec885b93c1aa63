// Registers kernels in the place of others without PyTorch's warning, which it gives once in a
// process.
#pragma once

#include <c10/util/Exception.h>

namespace openreg {

// While it exists, the calling thread's warnings of PyTorch's C++ code are dropped.
class IgnoreWarnings {
  class Handler : public c10::WarningHandler {
    void process(const c10::Warning &) override {}
  };
  Handler handler_;
  c10::WarningUtils::WarningHandlerGuard guard_{&handler_};
};

} // namespace openreg
