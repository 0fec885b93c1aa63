// An event that is destroyed with who has it.
#pragma once

#include <memory>

#include "streams/stream_observer.h"

namespace openreg {

struct DestroyEvent {
  void operator()(openreg_event *event) const {
    tell_watcher([event](Watcher &watcher) { watcher.forget(event); });
    openreg_event_destroy(event);
  }
};
using EventOwner = std::unique_ptr<openreg_event, DestroyEvent>;

inline EventOwner make_event(int device, bool enable_timing) {
  openreg_event *event = nullptr;
  check(openreg_event_create(device, enable_timing, &event));
  return EventOwner(event);
}

// As the device layer's, and who watches is told: for what is an order to the program, too.
inline void record_event(openreg_event *event, Queue queue) {
  tell_watcher([=](Watcher &watcher) { watcher.record(event, queue); });
  check(openreg_event_record(event, queue.stream));
}
inline void wait_for_event_on(Queue queue, const openreg_event *event) {
  tell_watcher([=](Watcher &watcher) { watcher.wait(queue, event); });
  check(openreg_stream_wait_event(queue.device, queue.stream, event));
}

} // namespace openreg
