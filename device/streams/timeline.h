/* timeline.h: how far a stream has come, as two numbers.
 *
 *     0 <= finished <= submitted
 *
 * Whoever has work for a stream takes a ticket: the value of `submitted`, which counts up. Work is
 * done in the order of tickets: the holder of ticket t may begin when finished == t and ends by
 * storing finished = t + 1. So there is never more than one thread that may write `finished`, the
 * holder of ticket `finished`, and the right passes from thread to thread in the order of tickets.
 * A point p on the timeline is reached when finished >= p: all work with tickets below p is done.
 *
 * Memory: whoever sees a point reached sees all that was written before it was, by the work itself
 * and by those whose work it came after. For `finished` is stored with release and read with
 * acquire, and each holder has read what the one before stored.
 *
 * Sleeping: `wake_at` is the lowest point that anybody sleeps for, 0 when none does, and `wakes`
 * counts how often such a point was reached. A waiter (1) reads `wakes`, (2) lowers wake_at to its
 * point, (3) looks at `finished` once more, (4) sleeps while `wakes` is as read. A finisher (a)
 * stores `finished`, (b) reads wake_at and, when that is reached, (c) sets it to 0, (d) adds to
 * `wakes` and wakes all; those whose points are further away start again at (1). When (3) misses
 * (a), then (2) came before (b), so that the finisher sees the wait, unless another finisher had
 * taken it away at (c): but that one adds to `wakes` after (1), and so (4) does not last.
 */
#ifndef OPENREG_DEVICE_STREAMS_TIMELINE_H
#define OPENREG_DEVICE_STREAMS_TIMELINE_H

#include "base/futex.h"

#pragma GCC visibility push(hidden)

enum { OPENREG_CACHE_LINE_BYTES = 64 };

/* Zero is a timeline on which nothing happened. */
struct timeline {
  /* Lines of their own: producers write the first, the worker the second. */
  _Alignas(OPENREG_CACHE_LINE_BYTES) _Atomic uint64_t submitted;
  _Alignas(OPENREG_CACHE_LINE_BYTES) _Atomic uint64_t finished;
  _Atomic uint64_t wake_at;
  _Atomic uint32_t wakes; /* a futex */
  unsigned depth;         /* of nested inline work; the holder's alone */
  bool metered;           /* the inline work is counted (busy.h); the holder's alone */
  int64_t traced_ns;      /* when traced inline work began (trace.h); 0: none; the holder's alone */
  /* The thread that does the work of ticket `finished`, by the address of a variable of its own;
   * NULL: none, or not yet. Beside `finished`, for both are written by whoever does work. */
  _Atomic(const void *) holder;
};

/* The point behind all work submitted so far. */
static inline uint64_t openreg_timeline_end(const struct timeline *timeline) {
  return atomic_load_explicit(&timeline->submitted, memory_order_acquire);
}

static inline uint64_t openreg_timeline_finished(const struct timeline *timeline) {
  return atomic_load_explicit(&timeline->finished, memory_order_acquire);
}

static inline bool openreg_timeline_reached(const struct timeline *timeline, uint64_t point) {
  return openreg_timeline_finished(timeline) >= point;
}

static inline bool openreg_timeline_is_idle(const struct timeline *timeline) {
  return openreg_timeline_reached(timeline, openreg_timeline_end(timeline));
}

static inline uint64_t openreg_timeline_take(struct timeline *timeline) {
  return atomic_fetch_add(&timeline->submitted, 1);
}

/* Takes a ticket only if its turn is now: while `submitted` is what `finished` was, nobody can have
 * changed `finished`. */
static inline bool openreg_timeline_try_take(struct timeline *timeline) {
  uint64_t ticket = openreg_timeline_finished(timeline);
  return atomic_compare_exchange_strong(&timeline->submitted, &ticket, ticket + 1);
}

/* Steps (c) and (d). */
void openreg_timeline_wake(struct timeline *timeline);

/* Ends the work before `point`. By the holder of ticket `point` - 1 alone. */
static inline void openreg_timeline_finish(struct timeline *timeline, uint64_t point) {
  atomic_store(&timeline->finished, point);
  uint64_t wake_at = atomic_load(&timeline->wake_at);
  if (wake_at != 0 && wake_at <= point)
    openreg_timeline_wake(timeline);
}

/* Waits until the point is reached; false when the deadline passed before it was. */
bool openreg_timeline_wait(struct timeline *timeline, uint64_t point, int64_t deadline_ns);

#pragma GCC visibility pop
#endif
