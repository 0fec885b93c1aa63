/* futex.c: the futex system calls, the clock and the spin count. See futex.h. */
#define _GNU_SOURCE /* sched_getaffinity, CPU_COUNT, syscall */
#include "base/futex.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* x86's pause instruction takes 10 to 140 cycles (Intel's optimization manual), so this spins for 2
 * to 40 us. A wake-up takes 5 to 50 us. */
enum { SPINS = 500 };

_Static_assert(sizeof(_Atomic uint32_t) == sizeof(uint32_t), "the kernel sees a plain word");

int64_t openreg_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t openreg_deadline_ns(uint64_t timeout_ns) {
  int64_t now_ns = openreg_now_ns();
  return timeout_ns < (uint64_t)(OPENREG_NEVER - now_ns) ? now_ns + (int64_t)timeout_ns
                                                         : OPENREG_NEVER;
}

bool openreg_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t deadline_ns) {
  struct timespec deadline = {.tv_sec = deadline_ns / 1000000000,
                              .tv_nsec = deadline_ns % 1000000000};
  /* FUTEX_WAIT_BITSET takes an absolute time. FUTEX_WAIT takes a duration, which would start over
   * after every spurious wake-up. */
  long result =
      syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, expected,
              deadline_ns == OPENREG_NEVER ? NULL : &deadline, NULL, FUTEX_BITSET_MATCH_ANY);
  return result == 0 || errno != ETIMEDOUT;
}

void openreg_futex_wake(_Atomic uint32_t *word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count);
}

static int choose_spin_count(void) {
  cpu_set_t cores;
  /* Fails on machines with more cores than cpu_set_t can hold. */
  bool alone = sched_getaffinity(getpid(), sizeof cores, &cores) == 0 && CPU_COUNT(&cores) == 1;
  return alone ? 0 : SPINS;
}

int openreg_spin_count(void) {
  static _Atomic int known = -1; /* racing threads compute the same value */
  int spins = atomic_load_explicit(&known, memory_order_relaxed);
  if (spins < 0) {
    spins = choose_spin_count();
    atomic_store_explicit(&known, spins, memory_order_relaxed);
  }
  return spins;
}
