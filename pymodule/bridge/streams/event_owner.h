// An event that is destroyed with who has it.
#pragma once

#include <memory>

#include "core/status.h"

namespace openreg {

struct DestroyEvent {
  void operator()(openreg_event *event) const { openreg_event_destroy(event); }
};
using EventOwner = std::unique_ptr<openreg_event, DestroyEvent>;

inline EventOwner make_event(int device, bool enable_timing) {
  openreg_event *event = nullptr;
  check(openreg_event_create(device, enable_timing, &event));
  return EventOwner(event);
}

} // namespace openreg
