/* failure.c: what work on a worker failed with, kept for each device until somebody synchronizes.
 *
 * `status` is read without the lock by everyone who synchronizes: it is written under the lock
 * before the work's ticket is finished, so that whoever saw the work finished sees it.
 */
#include "device/streams/stream.h"

#include <pthread.h>
#include <string.h>

#include "base/status.h"

static struct failure {
  pthread_mutex_t lock;
  _Atomic int status;
  char sentence[OPENREG_SENTENCE_BYTES];
} failures[OPENREG_MAX_DEVICES] = {
    [0 ... OPENREG_MAX_DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER},
};

void openreg_failure_keep(int device, openreg_status status) {
  struct failure *failure = &failures[device];
  /* A function's sentence, or that of its status when it wrote none. NOT_READY would be taken for
   * an unfinished wait. */
  if (status == OPENREG_NOT_READY)
    status = OPENREG_LAUNCH_FAILURE;
  if (openreg_last_error()[0] == '\0')
    openreg_fail(status, "openreg: %s on device %d", openreg_status_sentence(status), device);
  pthread_mutex_lock(&failure->lock);
  if (failure->status == OPENREG_OK) {
    strcpy(failure->sentence, openreg_last_error());
    failure->status = (int)status;
  }
  pthread_mutex_unlock(&failure->lock);
}

void openreg_device_keep_failure(int device, openreg_status status) {
  openreg_failure_keep(device, status);
}

openreg_status openreg_failure_take(int device) {
  struct failure *failure = &failures[device];
  if (atomic_load(&failure->status) == OPENREG_OK)
    return OPENREG_OK;
  pthread_mutex_lock(&failure->lock);
  openreg_status status = (openreg_status)failure->status;
  if (status != OPENREG_OK)
    openreg_fail(status, "%s", failure->sentence);
  failure->status = OPENREG_OK;
  pthread_mutex_unlock(&failure->lock);
  return status;
}
