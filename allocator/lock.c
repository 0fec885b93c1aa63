/* lock.c: waiting for a lock, in three stages; granting seats and taking them away; and forks.
 *
 * A holder that is running is done within some hundred instructions: the waiter looks on, with
 * pauses that leave the core's other thread alone, and tries to write only when it saw the lock
 * free, so that waiters do not take the cache line from the holder. One that was interrupted wants
 * this core: the waiter yields. One that waits for the system, or has a lower real-time priority
 * than all who yield, needs longer: the waiter naps.
 */
#include "allocator/lock.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

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

/* ---- seats ----------------------------------------------------------------------------------- */

static bool membarrier(int command) {
  return syscall(SYS_membarrier, command, 0, 0) == 0;
}

/* The caller has `taken`, and then the lock: no owner of a seat has it or can take it. */
static void take_seat_away(struct lock *lock, struct seat *seat) {
  atomic_store_explicit(&lock->seat, NULL, memory_order_seq_cst);
  /* A forked process must register anew. */
  if (!membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) &&
      !(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
        membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))) {
    fputs("openreg: membarrier(2) worked and then did not: it must not be forbidden to a process "
          "that uses devices\n",
          stderr);
    abort();
  }
  for (unsigned round = 0; atomic_load_explicit(&seat->inside, memory_order_acquire); round++)
    wait_a_while(round);
}

/* Where the system has no membarrier, no seats are granted. */
static void grant_seat(struct lock *lock, void *thread) {
  struct seat *seat = &lock->seats[lock->seats_granted];
  if (!membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)) {
    lock->seats_granted = SEAT_COUNT;
    return;
  }
  lock->seats_granted++;
  seat->thread = thread;
  atomic_store_explicit(&lock->seat, seat, memory_order_release);
}

void openreg_lock_take_unseated(struct lock *lock) {
  for (unsigned round = 0; atomic_exchange_explicit(&lock->taken, true, memory_order_acquire);)
    for (; atomic_load_explicit(&lock->taken, memory_order_relaxed); round++)
      wait_a_while(round);
  struct seat *seat = atomic_load_explicit(&lock->seat, memory_order_relaxed);
  if (seat)
    take_seat_away(lock, seat);
  lock->held = NULL;
  void *thread = lock_thread();
  if (thread != lock->last) {
    lock->last = thread;
    lock->row = 0;
  } else if (++lock->row >= (unsigned)SEAT_TAKES << lock->seats_granted &&
             lock->seats_granted < SEAT_COUNT) {
    lock->row = 0;
    grant_seat(lock, thread);
  }
}

int openreg_lock_watch_forks(void (*before)(void), void (*after)(void)) {
  return pthread_atfork(before, after, after);
}
