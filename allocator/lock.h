/* lock.h: the lock of a device's allocator and of the pinned pool: held for some tens of
 * nanoseconds, by one thread almost always.
 *
 * Taking it is one exchange and giving it back one store, where a mutex that can put waiters to
 * sleep needs a second exchange to learn of them. Hence waiting is polling, ever more patiently
 * (lock.c), which also bears the rare long hold of a system call. All zeros is a free lock. It
 * knows no owner: taking it twice hangs.
 */
#ifndef OPENREG_ALLOCATOR_LOCK_H
#define OPENREG_ALLOCATOR_LOCK_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/single_threaded.h>

#pragma GCC visibility push(hidden)

struct lock {
  atomic_bool taken;
};

/* Waits until the lock was seen free. */
void openreg_lock_await(struct lock *lock);

static inline void lock_take(struct lock *lock) {
  if (__libc_single_threaded) {
    assert(!atomic_load_explicit(&lock->taken, memory_order_relaxed));
    atomic_store_explicit(&lock->taken, true, memory_order_relaxed);
    return;
  }
  while (atomic_exchange_explicit(&lock->taken, true, memory_order_acquire))
    openreg_lock_await(lock);
}

static inline void lock_give(struct lock *lock) {
  assert(atomic_load_explicit(&lock->taken, memory_order_relaxed));
  atomic_store_explicit(&lock->taken, false, memory_order_release);
}

/* Has fork call `before`, and then `after` in both processes. Between these a lock can be held that
 * the new process goes on to use: no thread that is not there has it. Gives 0 or an errno value. */
int openreg_lock_watch_forks(void (*before)(void), void (*after)(void));

#pragma GCC visibility pop
#endif
