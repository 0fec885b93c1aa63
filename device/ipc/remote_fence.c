/* remote_point.c: waiting for points of another process's work (shared_signal.h).
 *
 * The other process may end before it reaches them, and tells nobody: so who waits looks now and
 * then whether it lives. A wait in a stream's queue also looks whether streams are shut down, so
 * that the end of this process never waits for another one.
 */
#include "device/ipc/imports.h"

#include <stdlib.h>

#include "base/futex.h"
#include "device/streams/stream.h"

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
openreg_status openreg_remote_point_query(const struct openreg_remote_point *remote) {
  if (openreg_shared_signal_reached(remote->signal, remote->point))
    return OPENREG_OK;
  if (openreg_ledger_is_alive(remote->file->peer))
    return OPENREG_NOT_READY;
  return openreg_shared_signal_reached(remote->signal, remote->point) ? OPENREG_OK
                                                                      : fail_ended(remote->file);
}

struct openreg_remote_point openreg_import_point(const openreg_import *import, uint32_t point) {
  return (struct openreg_remote_point){
      .file = import->file, .signal = &import->file->entries[import->index].signal, .point = point};
}

openreg_status openreg_remote_point_await(const struct openreg_remote_point *remote,
                                          int64_t deadline_ns) {
  for (;;) {
    int64_t look_ns = openreg_deadline_ns(LOOK_AFTER_NS);
    bool is_last = deadline_ns <= look_ns;
    if (openreg_shared_signal_wait(remote->signal, remote->point, is_last ? deadline_ns : look_ns))
      return OPENREG_OK;
    openreg_status status = openreg_remote_point_query(remote);
    if (status != OPENREG_NOT_READY || is_last)
      return status;
  }
}

/* ---- in a stream ----------------------------------------------------------------------------- */

/* `wait` has a reference to the file of its own: all else may be let go of before it is done. */
static void free_wait(struct openreg_remote_point *wait) {
  if (openreg_imports_lock() == OPENREG_OK) {
    openreg_peer_file_put_locked(wait->file);
    openreg_imports_unlock();
  }
  free(wait);
}

static openreg_status wait_in_stream(void *data) {
  struct openreg_remote_point *wait = data;
  openreg_status status = OPENREG_NOT_READY;
  while (status == OPENREG_NOT_READY && !openreg_streams_are_shut_down())
    status = openreg_remote_point_await(wait, openreg_deadline_ns(LOOK_AFTER_NS));
  free_wait(wait);
  return status == OPENREG_NOT_READY ? OPENREG_OK : status;
}

openreg_status openreg_remote_point_await_on_stream(const struct openreg_remote_point *remote,
                                                    int device, int stream) {
  if (openreg_shared_signal_reached(remote->signal, remote->point))
    return OPENREG_OK;
  struct openreg_remote_point *wait = malloc(sizeof *wait);
  if (wait == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for a wait");
  openreg_status status = openreg_imports_lock();
  if (status != OPENREG_OK) {
    free(wait);
    return status;
  }
  *wait = *remote;
  wait->file->references++;
  openreg_imports_unlock();
  /* A stream's own failure of the wait is returned by launch in blocking mode, after `wait` was
   * freed: launch's refusals come first and leave it. */
  status = openreg_stream_launch(device, stream, wait_in_stream, wait);
  if (status != OPENREG_OK && status != OPENREG_LAUNCH_FAILURE)
    free_wait(wait);
  return status;
}
