// While one lives, what PyTorch warns of on this thread is not shown: where a kernel takes the
// place of another on purpose.
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
