/* forks.c: registers fork handlers once, and blocks forks. See forks.h. */
#include "base/forks.h"

#include <string.h>

/* pthread_once passes no argument to the function it calls. */
static _Thread_local struct openreg_fork_handlers *starting;

static void start(void) {
  starting->error =
      pthread_atfork(starting->before, starting->after_in_parent, starting->after_in_child);
}

openreg_status openreg_forks_register(struct openreg_fork_handlers *handlers) {
  starting = handlers;
  pthread_once(&handlers->once, start);
  if (handlers->error != 0)
    return openreg_fail(OPENREG_SYSTEM, "openreg: cannot register fork handlers: %s",
                        strerror(handlers->error));
  return OPENREG_OK;
}

/* ---- blocking forks -------------------------------------------------------------------------- */

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void hold(void) {
  pthread_mutex_lock(&held);
}

static void release(void) {
  pthread_mutex_unlock(&held);
}

openreg_status openreg_forks_block(void) {
  static struct openreg_fork_handlers handlers = OPENREG_FORK_HANDLERS(hold, release, release);
  openreg_status status = openreg_forks_register(&handlers);
  if (status == OPENREG_OK)
    hold();
  return status;
}

void openreg_forks_unblock(void) {
  release();
}
