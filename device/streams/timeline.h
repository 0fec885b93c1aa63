/* timeline.h: the progress of a stream, as two numbers.
 *
 *     0 <= finished <= submitted
 *
 * To submit work, a thread takes a sequence number: the value of `submitted`, which then increases
 * by one. Work runs in sequence order. The owner of number s may begin when finished == s, and ends
 * by storing finished = s + 1. So at most one thread at a time may write `finished`: the owner of
 * number `finished`. A point p on the timeline is reached when finished >= p; then all work with
 * numbers below p is done.
 *
 * Memory: a thread that sees a point reached also sees everything written before it, by the work
 * itself and by all earlier work. This holds because `finished` is stored with release and read
 * with acquire, and each owner has read what the previous one stored.
 *
 * Sleeping: `wake_at` is the lowest point that any thread sleeps for, or 0. `wakes` counts how
 * often such a point was reached. A waiter
 *
 *     (1) reads `wakes`,
 *     (2) lowers wake_at to its point,
 *     (3) checks `finished` once more,
 *     (4) sleeps while `wakes` is unchanged.
 *
 * A finisher
 *
 *     (a) stores `finished`,
 *     (b) reads wake_at and, if that point is reached,
 *     (c) sets wake_at to 0,
 *     (d) increments `wakes` and wakes all waiters. Waiters for later points start again at (1).
 *
 * If (3) does not see (a), then (2) came before (b). So the finisher sees the waiter, unless
 * another finisher has cleared wake_at in (c). That finisher increments `wakes` after (1), so (4)
 * does not sleep.
 */
#ifndef OPENREG_DEVICE_STREAMS_TIMELINE_H
#define OPENREG_DEVICE_STREAMS_TIMELINE_H

#include "base/futex.h"

#pragma GCC visibility push(hidden)

enum { OPENREG_CACHE_LINE_BYTES = 64 };

/* All zeros is a timeline without work. */
struct timeline {
  /* Separate cache lines: producers write the first, the worker the second. */
  _Alignas(OPENREG_CACHE_LINE_BYTES) _Atomic uint64_t submitted;
  _Alignas(OPENREG_CACHE_LINE_BYTES) _Atomic uint64_t finished;
  _Atomic uint64_t wake_at;
  _Atomic uint32_t wakes; /* a futex */
  unsigned depth;         /* nesting depth of inline work; only the owner accesses it */
  bool counts_busy;       /* busy counters include it (busy_time.h); only the owner accesses it */
  int64_t trace_begin_ns; /* start of traced inline work, or 0; only the owner accesses it */
  /* The thread that runs the work of number `finished`, identified by the address of a variable of
   * that thread. NULL: none, or not begun yet. Next to `finished`, because the same thread writes
   * both. */
  _Atomic(const void *) owner;
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

static inline uint64_t openreg_timeline_take_sequence(struct timeline *timeline) {
  return atomic_fetch_add(&timeline->submitted, 1);
}

/* Takes a sequence number only if its turn is now. As long as `submitted` equals the value read
 * from `finished`, no thread can have changed `finished`. */
static inline bool openreg_timeline_try_take_sequence(struct timeline *timeline) {
  uint64_t sequence = openreg_timeline_finished(timeline);
  return atomic_compare_exchange_strong(&timeline->submitted, &sequence, sequence + 1);
}

/* Steps (c) and (d). */
void openreg_timeline_wake(struct timeline *timeline);

/* Finishes the work before `point`. Only the owner of number `point` - 1 may call this. */
static inline void openreg_timeline_finish(struct timeline *timeline, uint64_t point) {
  atomic_store(&timeline->finished, point);
  uint64_t wake_at = atomic_load(&timeline->wake_at);
  if (wake_at != 0 && wake_at <= point)
    openreg_timeline_wake(timeline);
}

/* Waits until the point is reached. Returns false if the deadline passes first. */
bool openreg_timeline_wait(struct timeline *timeline, uint64_t point, int64_t deadline_ns);

#pragma GCC visibility pop
#endif
