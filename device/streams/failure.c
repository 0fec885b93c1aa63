/* failure.c: keeps the first failure of each device's work until a thread synchronizes.
 *
 * Every synchronize reads `status` without the lock. It is written under the lock before the failed
 * work's sequence number finishes, so a thread that sees the work finished also sees the failure.
 */
#include "device/streams/stream.h"

#include <pthread.h>
#include <string.h>

#include "base/status.h"

static struct failure {
  pthread_mutex_t lock;
  _Atomic int status;
  char message[OPENREG_MESSAGE_BYTES];
} failures[OPENREG_MAX_DEVICES] = {
    [0 ... OPENREG_MAX_DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER},
};

void openreg_failure_keep(int device, openreg_status status) {
  struct failure *failure = &failures[device];
  /* Use the function's message, or the status's message if the function set none. NOT_READY would
   * look like an unfinished wait. */
  if (status == OPENREG_NOT_READY)
    status = OPENREG_LAUNCH_FAILURE;
  if (openreg_last_error()[0] == '\0')
    openreg_fail(status, "openreg: %s on device %d", openreg_status_message(status), device);
  pthread_mutex_lock(&failure->lock);
  if (failure->status == OPENREG_OK) {
    strcpy(failure->message, openreg_last_error());
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
    openreg_fail(status, "%s", failure->message);
  failure->status = OPENREG_OK;
  pthread_mutex_unlock(&failure->lock);
  return status;
}
