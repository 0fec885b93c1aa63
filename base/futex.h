/* futex.h: sleeping until another thread changes a word, and spinning before that.
 *
 * A sleeper announces itself in an atomic variable, checks its condition once more, and then
 * sleeps. A waker changes the condition first and then checks for sleepers. Both sides use
 * sequentially consistent loads and stores, so at least one sees the other's write: either the
 * sleeper does not sleep, or the waker wakes it. Fences are avoided because the thread sanitizer
 * does not understand them.
 */
#ifndef OPENREG_BASE_FUTEX_H
#define OPENREG_BASE_FUTEX_H

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/pause.h"

#pragma GCC visibility push(hidden)

enum { OPENREG_WAKE_ONE = 1, OPENREG_WAKE_ALL = INT_MAX };

/* A deadline that never comes. */
#define OPENREG_NEVER INT64_MAX

/* CLOCK_MONOTONIC. */
int64_t openreg_now_ns(void);

/* The time `timeout_ns` from now, or OPENREG_NEVER if the clock cannot represent it. */
int64_t openreg_deadline_ns(uint64_t timeout_ns);

/* Sleeps while the word equals `expected`. May return early, so callers must check their condition
 * again. Returns false if the deadline has passed. */
bool openreg_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t deadline_ns);

/* Wakes at most `count` threads that sleep on the word. */
void openreg_futex_wake(_Atomic uint32_t *word, int count);

/* Number of checks, with openreg_spin_pause between them, before sleeping pays off. Spinning takes
 * about as long as waking a thread. 0 if this process may use one core only, because the other side
 * needs it. */
int openreg_spin_count(void);

/* Pause between two checks; `spin` counts them. Every 32nd call yields the core, because the
 * awaited thread may be bound to the same core. */
static inline void openreg_spin_pause(int spin) {
  enum { SPINS_PER_YIELD = 32 };
  if (spin % SPINS_PER_YIELD == 0) {
    sched_yield();
    return;
  }
  openreg_cpu_pause();
}

#pragma GCC visibility pop
#endif
