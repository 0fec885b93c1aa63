/* lock.h: the lock of a device's allocator and of the pinned pool. It is held for some tens of
 * nanoseconds, almost always by one thread.
 *
 * Taking it is one exchange and releasing it one store. A mutex that can put waiters to sleep needs
 * a second exchange to find out about them. So waiting means polling, with growing pauses (lock.c),
 * which also tolerates the rare long hold during a system call. All zeros is a free lock. The lock
 * does not know its owner: taking it twice hangs.
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

/* Returns when the lock was seen free. */
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

/* Makes fork call `before`, and then `after` in both processes. If `before` takes a lock, the child
 * can use it: no thread that does not exist there holds it. Returns 0 or an errno value. */
int openreg_lock_register_fork_handlers(void (*before)(void), void (*after)(void));

#pragma GCC visibility pop
#endif
