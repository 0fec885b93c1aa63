/* remote_fence.c: waits for points of another process's work (shared_signal.h).
 *
 * The other process may end before it reaches the point, without notification. So waiters check
 * periodically whether it is alive. A wait in a stream's queue also checks whether streams are shut
 * down, so that the exit of this process never waits for another one.
 */
#include "device/ipc/imports.h"

#include <stdlib.h>

#include "base/futex.h"
#include "device/streams/stream.h"

/* Interval of liveness checks. Short enough for users, and long enough that one system call costs
 * nothing. */
#define LIVENESS_CHECK_NS ((uint64_t)20 * 1000 * 1000)

static openreg_status fail_ended(const struct peer_file *file) {
  return openreg_fail(OPENREG_LAUNCH_FAILURE,
                      "openreg: process %d ended before it finished work on its device %d that "
                      "this process waits for",
                      file->pid, file->device);
}

/* Check the point again last: the process may have reached it just before it ended. */
openreg_status openreg_remote_fence_query(const struct openreg_remote_fence *remote) {
  if (openreg_shared_signal_reached(remote->signal, remote->point))
    return OPENREG_OK;
  if (openreg_ledger_is_alive(remote->file->peer))
    return OPENREG_NOT_READY;
  return openreg_shared_signal_reached(remote->signal, remote->point) ? OPENREG_OK
                                                                      : fail_ended(remote->file);
}

struct openreg_remote_fence openreg_import_fence(const openreg_import *import, uint32_t point) {
  return (struct openreg_remote_fence){
      .file = import->file, .signal = &import->file->entries[import->index].signal, .point = point};
}

openreg_status openreg_remote_fence_await(const struct openreg_remote_fence *remote,
                                          int64_t deadline_ns) {
  for (;;) {
    int64_t look_ns = openreg_deadline_ns(LIVENESS_CHECK_NS);
    bool is_last = deadline_ns <= look_ns;
    if (openreg_shared_signal_wait(remote->signal, remote->point, is_last ? deadline_ns : look_ns))
      return OPENREG_OK;
    openreg_status status = openreg_remote_fence_query(remote);
    if (status != OPENREG_NOT_READY || is_last)
      return status;
  }
}

/* ---- in a stream ----------------------------------------------------------------------------- */

/* `wait` has its own reference to the file, so the import may be closed before the wait ends. */
static void free_wait(struct openreg_remote_fence *wait) {
  if (openreg_imports_lock() == OPENREG_OK) {
    openreg_peer_file_put_locked(wait->file);
    openreg_imports_unlock();
  }
  free(wait);
}

static openreg_status wait_in_stream(void *data) {
  struct openreg_remote_fence *wait = data;
  openreg_status status = OPENREG_NOT_READY;
  while (status == OPENREG_NOT_READY && !openreg_streams_are_shut_down())
    status = openreg_remote_fence_await(wait, openreg_deadline_ns(LIVENESS_CHECK_NS));
  free_wait(wait);
  return status == OPENREG_NOT_READY ? OPENREG_OK : status;
}

openreg_status openreg_remote_fence_await_on_stream(const struct openreg_remote_fence *remote,
                                                    int device, int stream) {
  if (openreg_shared_signal_reached(remote->signal, remote->point))
    return OPENREG_OK;
  struct openreg_remote_fence *wait = malloc(sizeof *wait);
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
  /* In blocking mode, launch runs the wait, which frees `wait`, and returns its failure
   * (LAUNCH_FAILURE). Any other status means that launch did not run it. */
  status = openreg_stream_launch(device, stream, wait_in_stream, wait);
  if (status != OPENREG_OK && status != OPENREG_LAUNCH_FAILURE)
    free_wait(wait);
  return status;
}
