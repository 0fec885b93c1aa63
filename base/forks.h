/* forks.h: fork handlers, and blocking forks.
 *
 * A forked child has its parent's memory but only one thread. If another thread held a lock at the
 * time of the fork, the lock stays locked in the child and the data it guards may be half updated.
 * Therefore every file with a lock acquires it before a fork and releases it afterwards, in parent
 * and child.
 */
#ifndef OPENREG_BASE_FORKS_H
#define OPENREG_BASE_FORKS_H

#include "base/base.h"

#include <pthread.h>

#pragma GCC visibility push(hidden)

/* One static variable per file that registers handlers. */
struct openreg_fork_handlers {
  pthread_once_t once;
  void (*before)(void); /* arguments of pthread_atfork */
  void (*after_in_parent)(void);
  void (*after_in_child)(void);
  int error;
};

#define OPENREG_FORK_HANDLERS(before, after_in_parent, after_in_child)                             \
  { PTHREAD_ONCE_INIT, before, after_in_parent, after_in_child, 0 }

/* Registers the handlers on the first call; later calls do nothing. Errors: SYSTEM, on every
 * call. */
openreg_status openreg_forks_register(struct openreg_fork_handlers *handlers);

/* While blocked, forks in this process wait. This keeps a child from inheriting a half-finished
 * operation. Not recursive. Errors: SYSTEM. */
openreg_status openreg_forks_block(void);
void openreg_forks_unblock(void);

#pragma GCC visibility pop
#endif
