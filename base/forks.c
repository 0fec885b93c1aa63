/* forks.c: watching for forks, once for each who does. See forks.h. */
#include "base/forks.h"

#include <string.h>

/* pthread_once hands nothing to the function that it calls. */
static _Thread_local struct openreg_fork_watch *starting;

static void start(void) {
  starting->error =
      pthread_atfork(starting->before, starting->after_in_parent, starting->after_in_child);
}

openreg_status openreg_forks_watch(struct openreg_fork_watch *watch) {
  starting = watch;
  pthread_once(&watch->once, start);
  if (watch->error != 0)
    return openreg_fail(OPENREG_SYSTEM, "openreg: watching for forks: %s", strerror(watch->error));
  return OPENREG_OK;
}

/* ---- holding them up ------------------------------------------------------------------------- */

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void hold(void) {
  pthread_mutex_lock(&held);
}

static void release(void) {
  pthread_mutex_unlock(&held);
}

openreg_status openreg_forks_hold(void) {
  static struct openreg_fork_watch watch = OPENREG_FORK_WATCH(hold, release, release);
  openreg_status status = openreg_forks_watch(&watch);
  if (status == OPENREG_OK)
    hold();
  return status;
}

void openreg_forks_release(void) {
  release();
}
