/* shared_event.h: an event that several processes have, as one of them has it.
 *
 * Each process that records the event has an entry of its own for that, in the table behind its own
 * arena: whose event it is, in the event's entry; any other, in an entry of records that carries
 * the event's nonce. The signal of the entry (shared_signal.h) is the points at which that process
 * recorded the event. So a process writes how far its own work is in its own file alone, and the
 * death of one does not disturb what another says.
 *
 * All that the processes have in common is one word in the event's entry, `latest`: which process
 * recorded last, as a place in the ledger, the index of its entry and the upper bits of that
 * entry's nonce; and whether the work of all its points is done. The point is `recorded` of that
 * entry. The word is stored whole, after the point was published:
 *
 * - there is no lock, so nobody dies with one; who dies in the middle has not recorded yet;
 * - of records at the same time the last store wins, and all agree which;
 * - who waits takes process and point once, and later records change nothing for it;
 * - who lets go of the event, or ends, after its work was done leaves a word that says so, and
 *   nobody need find it.
 *
 * A word that does not say so names a process that is looked for where imports are (peer_file.c):
 * its file is opened on the first such meeting, and kept. A place in the ledger may have come to
 * another process since, but its table has no entry of that nonce: then, or when the place is
 * empty, the recorder has died with the work undone, or has replaced the word meanwhile.
 *
 * The word is where its exporter's memory file is, which lasts as long as anybody has the event. So
 * importers go on with each other when the exporter has let go of it or has ended.
 */
#ifndef OPENREG_DEVICE_IPC_SHARED_EVENT_H
#define OPENREG_DEVICE_IPC_SHARED_EVENT_H

#include "device/ipc/imports.h"

#pragma GCC visibility push(hidden)

/* One for all openreg_events that are the same event in this process. */
typedef struct openreg_shared_event openreg_shared_event;

/* Makes one for an event of this process that is to be exported. Errors: as
 * openreg_exports_add_event. */
openreg_status openreg_shared_event_create(int device, openreg_shared_event **event);
void openreg_shared_event_pack(const openreg_shared_event *event, openreg_ipc_handle *handle);

/* Opens a handle; once more for one that is open here already. Errors: as openreg_ipc_open. */
openreg_status openreg_shared_event_open(const openreg_ipc_handle *handle,
                                         openreg_shared_event **event);

/* Once for each create and open, when the points of its records are ended. */
void openreg_shared_event_close(openreg_shared_event *event);

bool openreg_shared_event_is_imported(const openreg_shared_event *event);
int openreg_shared_event_device(const openreg_shared_event *event);

/* ---- recording: `recorded` is this process's own word for it, never 0 ------------------------ */

/* A point whose work is done. Errors: as openreg_exports_add_event, on this process's first. */
openreg_status openreg_shared_event_mark(openreg_shared_event *event, uint64_t recorded);

/* A point whose work is not done. It is published when the work is in the queue, so that nobody
 * waits for what is not; and ended when the work is done, or could not be queued. Other errors:
 * OUT_OF_MEMORY. */
openreg_status openreg_shared_event_begin(openreg_shared_event *event, uint32_t *point);
void openreg_shared_event_publish(openreg_shared_event *event, uint32_t point, uint64_t recorded);
void openreg_shared_event_end(openreg_shared_event *event, uint32_t point);

/* ---- asking ---------------------------------------------------------------------------------- */

/* The latest record, by whichever process: `recorded` of one by this process, 0 when it was reached
 * or there is none; otherwise the point in another process, to be let go of. Errors:
 * LAUNCH_FAILURE when that process has died, OUT_OF_MEMORY, SYSTEM when it cannot be found. */
openreg_status openreg_shared_event_latest(openreg_shared_event *event, uint64_t *recorded,
                                           struct openreg_remote_point *remote);
void openreg_shared_event_let_go(const openreg_shared_event *event,
                                 const struct openreg_remote_point *remote);

#pragma GCC visibility pop
#endif
