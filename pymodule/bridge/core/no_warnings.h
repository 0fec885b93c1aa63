// Suppresses PyTorch's warnings on this thread while it lives. PyTorch warns when one kernel
// overrides another, which the bridge does on purpose.
#pragma once

#include <c10/util/Exception.h>

namespace openreg {

class NoWarnings {
private:
  class Silent final : public c10::WarningHandler {
  public:
    void process(const c10::Warning &) override {}
  };

  Silent silent_;
  c10::WarningUtils::WarningHandlerGuard guard_{&silent_};
};

} // namespace openreg
