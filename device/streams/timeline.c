/* timeline.c: waits for points on a timeline. timeline.h explains why this is correct. */
#include "device/streams/timeline.h"

void openreg_timeline_wake(struct timeline *timeline) {
  atomic_exchange(&timeline->wake_at, 0);
  atomic_fetch_add(&timeline->wakes, 1);
  openreg_futex_wake(&timeline->wakes, OPENREG_WAKE_ALL);
}

static void request_wake(struct timeline *timeline, uint64_t point) {
  uint64_t wake_at = atomic_load(&timeline->wake_at);
  while ((wake_at == 0 || wake_at > point) &&
         !atomic_compare_exchange_weak(&timeline->wake_at, &wake_at, point)) {
  }
}

bool openreg_timeline_wait(struct timeline *timeline, uint64_t point, int64_t deadline_ns) {
  for (int i = openreg_spin_count(); i > 0; i--) {
    if (openreg_timeline_reached(timeline, point))
      return true;
    openreg_spin_pause(i);
  }
  for (;;) {
    uint32_t wakes = atomic_load(&timeline->wakes);
    request_wake(timeline, point);
    /* A thread that finds the point reached, or gives up, leaves its wake_at behind. This causes
     * one unnecessary wake-up. */
    if (atomic_load(&timeline->finished) >= point)
      return true;
    if (!openreg_futex_wait(&timeline->wakes, wakes, deadline_ns))
      return openreg_timeline_reached(timeline, point);
  }
}
