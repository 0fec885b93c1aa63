/* lock.h: the lock of a device's allocator and of the pinned pool: held for some tens of
 * nanoseconds, by one thread almost always.
 *
 * Taking it is one exchange and giving it back one store, where a mutex that can put waiters to
 * sleep needs a second exchange to learn of them. Hence waiting is polling, ever more patiently
 * (lock.c), which also bears the rare long hold of a system call. All zeros is a free lock. It
 * knows no owner: taking it twice hangs.
 *
 * Even one exchange costs as much as all that is done under the lock. So a thread that took it many
 * times in a row is granted a seat: from then on it takes the lock by a store to its seat and a
 * load, in this order but without a fence. Another thread that wants the lock takes the seat away:
 *
 *     owner:  seat.inside = true;  if (lock.seat == seat) it has the lock, else it has not
 *     other:  takes lock.taken; lock.seat = NULL; fences all threads; waits for !seat.inside
 *
 * where membarrier(2) is the fence of both, so that one of them sees what the other wrote. A seat
 * is granted once: its last owner may still write to it, however late, and nobody else does.
 */
#ifndef OPENREG_ALLOCATOR_LOCK_H
#define OPENREG_ALLOCATOR_LOCK_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#pragma GCC visibility push(hidden)

/* Seats of a lock. Taking one away costs up to some ten microseconds, so each is granted after
 * twice as many takes as the one before: SEAT_TAKES << seats granted so far. */
enum { SEAT_COUNT = 8, SEAT_TAKES = 128 };

struct seat {
  void *thread; /* constant once granted */
  atomic_bool inside;
};

struct lock {
  _Atomic(struct seat *) seat;
  struct seat *held; /* by the holder: through its seat; NULL: through `taken` */
  atomic_bool taken;
  int seats_granted; /* this and what follows: under `taken` */
  unsigned row;
  void *last; /* thread, which took it `row` times in a row */
  struct seat seats[SEAT_COUNT];
};

/* Takes the lock for a thread that has no seat. */
void openreg_lock_take_unseated(struct lock *lock);

/* Stands for the thread while it lives; its successor may have the same. */
static inline void *lock_thread(void) {
  return __builtin_thread_pointer();
}

/* Takes it for the owner of the seat; false for any other thread. */
static inline bool lock_take_seated(struct lock *lock) {
  struct seat *seat = atomic_load_explicit(&lock->seat, memory_order_acquire);
  if (__builtin_expect(seat && seat->thread == lock_thread(), 1)) {
    atomic_store_explicit(&seat->inside, true, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&lock->seat, memory_order_relaxed) == seat, 1)) {
      lock->held = seat;
      return true;
    }
    atomic_store_explicit(&seat->inside, false, memory_order_release);
  }
  return false;
}

static inline void lock_take(struct lock *lock) {
  if (!lock_take_seated(lock))
    openreg_lock_take_unseated(lock);
}

static inline void lock_give(struct lock *lock) {
  struct seat *held = lock->held;
  if (held) {
    assert(atomic_load_explicit(&held->inside, memory_order_relaxed));
    atomic_store_explicit(&held->inside, false, memory_order_release);
  } else {
    assert(atomic_load_explicit(&lock->taken, memory_order_relaxed));
    atomic_store_explicit(&lock->taken, false, memory_order_release);
  }
}

/* Has fork call `before`, and then `after` in both processes. Between these a lock can be held that
 * the new process goes on to use: no thread that is not there has it. Gives 0 or an errno value. */
int openreg_lock_watch_forks(void (*before)(void), void (*after)(void));

#pragma GCC visibility pop
#endif
