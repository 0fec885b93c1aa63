/* forks.h: locks that are held across a fork, and what a child lets go of.
 *
 * A child has the memory of its parent and one thread: a lock that another thread held stays held
 * in it, with what it guards half done. So a file that has a lock takes it before a fork and gives
 * it back after, in parent and child.
 */
#ifndef OPENREG_BASE_FORKS_H
#define OPENREG_BASE_FORKS_H

#include "base/base.h"

#include <pthread.h>

#pragma GCC visibility push(hidden)

/* A static variable of whoever watches. */
struct openreg_fork_watch {
  pthread_once_t once;
  void (*before)(void); /* these as pthread_atfork takes them */
  void (*after_in_parent)(void);
  void (*after_in_child)(void);
  int error;
};

#define OPENREG_FORK_WATCH(before, after_in_parent, after_in_child)                                \
  { PTHREAD_ONCE_INIT, before, after_in_parent, after_in_child, 0 }

/* From the first call on the functions are called at forks. Errors: SYSTEM, at each call. */
openreg_status openreg_forks_watch(struct openreg_fork_watch *watch);

/* Forks of this process wait while this is held, lest a child gets a half of what is being done.
 * Not to be held twice. Errors: SYSTEM. */
openreg_status openreg_forks_hold(void);
void openreg_forks_release(void);

#pragma GCC visibility pop
#endif
