/* futex.h: sleeping until another thread changes a word, and the short look before it.
 *
 * Whoever sleeps says so in an atomic variable, looks once more at what it waits for, and only then
 * sleeps; whoever brings it about writes it, and only then looks for sleepers. Both sides use
 * sequentially consistent loads and stores, so that at least one of them sees the other's write:
 * either the sleeper does not sleep or the other wakes it. No fences: the thread sanitizer does not
 * understand them.
 */
#ifndef OPENREG_BASE_FUTEX_H
#define OPENREG_BASE_FUTEX_H

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

enum { OPENREG_WAKE_ONE = 1, OPENREG_WAKE_ALL = INT_MAX };

/* A deadline that never comes. */
#define OPENREG_NEVER INT64_MAX

/* CLOCK_MONOTONIC. */
int64_t openreg_now_ns(void);

/* The moment `timeout_ns` from now, OPENREG_NEVER when that is further than the clock counts. */
int64_t openreg_deadline_ns(uint64_t timeout_ns);

/* Sleeps while the word is `expected`. May return at any time, so that the caller looks again;
 * false when the deadline has passed. */
bool openreg_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t deadline_ns);

/* Wakes at most `count` of the threads that sleep on the word. */
void openreg_futex_wake(_Atomic uint32_t *word, int count);

/* How often to look, with openreg_relax between two looks, before it pays to sleep: for about as
 * long as waking a thread takes. 0 where this process has one core, which the other side needs. */
int openreg_looks_before_sleep(void);

/* Between looks; `look` counts them. Now and then the core is offered to whoever else wants it: the
 * thread that is looked for may be bound to this very core. */
static inline void openreg_relax(int look) {
  enum { LOOKS_PER_YIELD = 32 };
  if (look % LOOKS_PER_YIELD == 0) {
    sched_yield();
    return;
  }
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

#pragma GCC visibility pop
#endif
