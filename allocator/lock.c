/* lock.c: waiting for a lock in three stages, and fork handlers.
 *
 * A holder that is running finishes within some hundred instructions. So the waiter first polls,
 * with pauses that leave the core to its other thread. It writes only after it saw the lock free,
 * so that waiters do not take the cache line from the holder. A holder that was preempted may need
 * this core, so the waiter then yields. A holder that waits for the system, or has a lower
 * real-time priority than all yielding threads, needs longer, so the waiter then sleeps.
 */
#include "allocator/lock.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "base/pause.h"

enum {
  LOOKS = 100,    /* each takes 10 to 140 cycles (base/pause.h) */
  YIELDS = 100,   /* each takes half a microsecond on an idle core, a time slice on a busy one */
  NAP_NS = 50000, /* the kernel's default timer slack makes any sleep at least this long (prctl(2))
                   */
};

static void wait_a_while(unsigned round) {
  static const struct timespec nap = {.tv_nsec = NAP_NS};
  if (round < LOOKS)
    openreg_cpu_pause();
  else if (round < LOOKS + YIELDS)
    sched_yield();
  else
    nanosleep(&nap, NULL);
}

void openreg_lock_await(struct lock *lock) {
  for (unsigned round = 0; atomic_load_explicit(&lock->taken, memory_order_relaxed); round++)
    wait_a_while(round);
}

int openreg_lock_register_fork_handlers(void (*before)(void), void (*after)(void)) {
  return pthread_atfork(before, after, after);
}
