/* lock.c: waiting for a lock, in three stages; and forks.
 *
 * A holder that is running is done within some hundred instructions: the waiter looks on, with
 * pauses that leave the core's other thread alone, and tries to write only when it saw the lock
 * free, so that waiters do not take the cache line from the holder. One that was interrupted wants
 * this core: the waiter yields. One that waits for the system, or has a lower real-time priority
 * than all who yield, needs longer: the waiter naps.
 */
#include "allocator/lock.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

enum {
  LOOKS = 100,    /* x86's pause takes 10 to 140 cycles (Intel's optimization manual) */
  YIELDS = 100,   /* half a microsecond each on an idle core, a time slice on a busy one */
  NAP_NS = 50000, /* as long as the kernel's default timer slack makes any nap (prctl(2)) */
};

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

static void wait_a_while(unsigned round) {
  static const struct timespec nap = {.tv_nsec = NAP_NS};
  if (round < LOOKS)
    relax();
  else if (round < LOOKS + YIELDS)
    sched_yield();
  else
    nanosleep(&nap, NULL);
}

void openreg_lock_await(struct lock *lock) {
  for (unsigned round = 0; atomic_load_explicit(&lock->taken, memory_order_relaxed); round++)
    wait_a_while(round);
}

int openreg_lock_watch_forks(void (*before)(void), void (*after)(void)) {
  return pthread_atfork(before, after, after);
}
