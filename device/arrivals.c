/* arrivals.c: waiting for points of another process's work (shared_signal.h).
 *
 * The other process may end before it reaches them, and tells nobody: so who waits looks now and
 * then whether it lives. A wait in a stream's queue also looks whether streams are shut down, so
 * that the end of this process never waits for another one.
 */
#include "imports.h"

#include "futex.h"
#include "stream.h"

#include <stdlib.h>

/* How long the end of the other process may stay unnoticed: short to a person, and the look, one
 * system call, costs nothing by it. */
#define LOOK_AFTER_NS ((uint64_t)20 * 1000 * 1000)

static openreg_status fail_ended(const struct peer_file *file) {
  return openreg_fail(OPENREG_LAUNCH_FAILURE,
                      "openreg: process %d ended before the work on its device %d was done that "
                      "this process waits for",
                      file->pid, file->device);
}

/* The process may have reached the point just before it ended: so that is looked at last. */
static openreg_status look(const struct peer_file *file, const struct openreg_shared_signal *signal,
                           uint32_t point) {
  if (openreg_shared_signal_reached(signal, point))
    return OPENREG_OK;
  if (openreg_ledger_is_alive(file->peer))
    return OPENREG_NOT_READY;
  return openreg_shared_signal_reached(signal, point) ? OPENREG_OK : fail_ended(file);
}

openreg_status openreg_import_query(const openreg_import *import, uint32_t point) {
  return look(import->file, openreg_import_signal(import), point);
}

openreg_status openreg_import_await(const openreg_import *import, uint32_t point,
                                    int64_t deadline_ns) {
  struct openreg_shared_signal *signal = openreg_import_signal(import);
  for (;;) {
    int64_t look_ns = openreg_deadline_ns(LOOK_AFTER_NS);
    bool is_last = deadline_ns <= look_ns;
    if (openreg_shared_signal_wait(signal, point, is_last ? deadline_ns : look_ns))
      return OPENREG_OK;
    openreg_status status = look(import->file, signal, point);
    if (status != OPENREG_NOT_READY || is_last)
      return status;
  }
}

/* ---- in a stream ----------------------------------------------------------------------------- */

/* Has a reference to the file, not to the import, which may be closed before its turn comes. */
struct wait {
  struct peer_file *file;
  struct openreg_shared_signal *signal;
  uint32_t point;
};

static void free_wait(struct wait *wait) {
  if (openreg_imports_lock() == OPENREG_OK) {
    openreg_peer_file_put_locked(wait->file);
    openreg_imports_unlock();
  }
  free(wait);
}

static openreg_status wait_in_stream(void *data) {
  struct wait *wait = data;
  openreg_status status = OPENREG_NOT_READY;
  while (status == OPENREG_NOT_READY && !openreg_streams_are_shut_down()) {
    if (openreg_shared_signal_wait(wait->signal, wait->point, openreg_deadline_ns(LOOK_AFTER_NS)))
      status = OPENREG_OK;
    else
      status = look(wait->file, wait->signal, wait->point);
  }
  free_wait(wait);
  return status == OPENREG_NOT_READY ? OPENREG_OK : status;
}

openreg_status openreg_import_await_on_stream(openreg_import *import, uint32_t point, int device,
                                              int stream) {
  struct openreg_shared_signal *signal = openreg_import_signal(import);
  if (openreg_shared_signal_reached(signal, point))
    return OPENREG_OK;
  struct wait *wait = malloc(sizeof *wait);
  if (wait == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for a wait");
  openreg_status status = openreg_imports_lock();
  if (status != OPENREG_OK) {
    free(wait);
    return status;
  }
  *wait = (struct wait){.file = import->file, .signal = signal, .point = point};
  wait->file->references++;
  openreg_imports_unlock();
  /* A stream's own failure of the wait is returned by launch in blocking mode, after `wait` was
   * freed: launch's refusals come first and leave it. */
  status = openreg_stream_launch(device, stream, wait_in_stream, wait);
  if (status != OPENREG_OK && status != OPENREG_LAUNCH_FAILURE)
    free_wait(wait);
  return status;
}
