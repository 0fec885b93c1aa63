/* shared_event.h: an event that several processes share, as seen by one of them.
 *
 * Each process that records the event has its own entry for that, in the export table of its own
 * arena. The creator of the event uses the event's entry. Any other process uses an entry of kind
 * RECORDINGS that contains the event's nonce. The points of the entry's signal (shared_signal.h)
 * are the recordings of that process. So each process writes the progress of its work only to its
 * own file, and the death of one process does not affect the others.
 *
 * The processes share only one word, `latest` in the event's entry. It identifies the process that
 * recorded last (its slot in the ledger, the index of its entry and the upper bits of that entry's
 * nonce), and tells whether all work it recorded is done. The recording is the point `recorded` of
 * that entry. The word is stored atomically, after the point was published:
 *
 * - There is no lock, so no process can die holding one. A process that dies in between has not
 *   recorded yet.
 * - If processes record at the same time, the last store wins, and all processes agree.
 * - A waiter reads process and point once; later recordings do not affect it.
 * - A process that closes the event or ends after its work was done leaves a word with DONE, and no
 *   process needs to find it.
 *
 * If DONE is not set, the word names a process that is looked up as for imports (peer_file.c). Its
 * file is opened once and kept. The slot may belong to another process by now, but that process's
 * table has no entry with the nonce. In this case, or if the slot is free, the recorder died before
 * its work was done, or a newer recording has replaced the word.
 *
 * The word lies in the memory file of the event's creator, which exists as long as any process has
 * the event. So importers can continue to use the event after its creator has closed it or ended.
 */
#ifndef OPENREG_DEVICE_IPC_SHARED_EVENT_H
#define OPENREG_DEVICE_IPC_SHARED_EVENT_H

#include "device/ipc/imports.h"

#pragma GCC visibility push(hidden)

/* One object for all openreg_events of this process that represent the same event. */
typedef struct openreg_shared_event openreg_shared_event;

/* Creates one for an event of this process that will be exported. Errors: as
 * openreg_exports_add_event. */
openreg_status openreg_shared_event_create(int device, openreg_shared_event **event);
void openreg_shared_event_pack(const openreg_shared_event *event, openreg_ipc_handle *handle);

/* Opens a handle; may be called again for an event that is already open here. Errors: as
 * openreg_ipc_open. */
openreg_status openreg_shared_event_open(const openreg_ipc_handle *handle,
                                         openreg_shared_event **event);

/* Call once for each create and open, after all points of its recordings have ended. */
void openreg_shared_event_close(openreg_shared_event *event);

bool openreg_shared_event_is_imported(const openreg_shared_event *event);
int openreg_shared_event_device(const openreg_shared_event *event);

/* ---- recording: `recorded` is this process's word for a recording, never 0 ------------------- */

/* Records a point whose work is done. Errors of this process's first recording: as
 * openreg_exports_add_event. */
openreg_status openreg_shared_event_mark(openreg_shared_event *event, uint64_t recorded);

/* Record a point whose work is not done yet. Publish it when the work is in the queue, so that
 * nobody waits for work that does not exist. End it when the work is done or could not be queued.
 * Other errors: OUT_OF_MEMORY. */
openreg_status openreg_shared_event_begin(openreg_shared_event *event, uint32_t *point);
void openreg_shared_event_publish(openreg_shared_event *event, uint32_t point, uint64_t recorded);
void openreg_shared_event_end(openreg_shared_event *event, uint32_t point);

/* ---- querying -------------------------------------------------------------------------------- */

/* Returns the latest recording by any process. If this process made it, returns its `recorded`. If
 * it was reached, or there is none, returns 0. Otherwise returns a fence in another process, which
 * the caller must release. Errors: LAUNCH_FAILURE (that process has died), OUT_OF_MEMORY, SYSTEM
 * (it cannot be found). */
openreg_status openreg_shared_event_latest(openreg_shared_event *event, uint64_t *recorded,
                                           struct openreg_remote_fence *remote);
void openreg_shared_event_release_fence(const openreg_shared_event *event,
                                        const struct openreg_remote_fence *remote);

#pragma GCC visibility pop
#endif
