// An owning pointer to an event, and event functions that also notify the stream observer.
#pragma once

#include <memory>

#include "streams/observer.h"

namespace openreg {

struct DestroyEvent {
  void operator()(openreg_event *event) const {
    notify_observers(
        [event](Observer &observer) { observer.forget(event, EventOrigin::kInternal); });
    openreg_event_destroy(event);
  }
};
using EventOwner = std::unique_ptr<openreg_event, DestroyEvent>;

inline EventOwner make_event(int device, bool enable_timing) {
  openreg_event *event = nullptr;
  check(openreg_event_create(device, enable_timing, &event));
  return EventOwner(event);
}

// These record an event or wait for it as the device layer does, and notify the observer. Use them
// where the event orders work as the program sees it.
inline void record_event(openreg_event *event, StreamKey stream) {
  notify_observers(
      [=](Observer &observer) { observer.record(event, stream, EventOrigin::kInternal); });
  check(openreg_event_record(event, stream.stream));
}
inline void wait_for_event_on(StreamKey stream, const openreg_event *event) {
  notify_observers(
      [=](Observer &observer) { observer.wait(stream, event, EventOrigin::kInternal); });
  check(openreg_stream_wait_event(stream.device, stream.stream, event));
}

} // namespace openreg
