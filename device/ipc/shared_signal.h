/* shared_signal.h: points in a process's work that other processes can wait for.
 *
 * The process that does the work numbers its points. Two words in memory that others map contain
 * the last point and how far the work has come:
 *
 *     point n is reached  <=>  reached - n >= 0, as a signed difference, because the words wrap
 * around
 *
 * Points of different streams may complete in any order, but `reached` only advances past a point
 * when all points before it are done. So waiting for a point waits for all earlier points too.
 * Numbers continue to count up when the words are reused for something else, so that a process that
 * still waits for an old point does not wait forever.
 */
#ifndef OPENREG_DEVICE_IPC_SHARED_SIGNAL_H
#define OPENREG_DEVICE_IPC_SHARED_SIGNAL_H

#include "device/device.h"

#include <stdatomic.h>

#pragma GCC visibility push(hidden)

struct openreg_shared_signal {
  _Atomic uint32_t recorded; /* the last point that others may wait for */
  _Atomic uint32_t reached;  /* a futex */
};

/* ---- in the process that does the work; call these under a lock ------------------------------ */

struct openreg_signal {
  struct openreg_shared_signal *shared;
  uint32_t issued;
  struct openreg_pending *first, *last; /* points whose work is not done, in the order of numbers */
};

/* Makes a point whose work is done. */
uint32_t openreg_signal_mark(struct openreg_signal *signal);

/* Make a point whose work is not done, and end it later. Errors: OUT_OF_MEMORY. */
openreg_status openreg_signal_begin(struct openreg_signal *signal, uint32_t *point);
void openreg_signal_end(struct openreg_signal *signal, uint32_t point);

/* Lets others wait for the point. Returns false if they already wait for a later one. */
bool openreg_signal_publish(struct openreg_signal *signal, uint32_t point);

/* Whether the work of all points is done. */
static inline bool openreg_signal_is_done(const struct openreg_signal *signal) {
  return signal->first == NULL;
}

/* Whether this point is the only one that is not done. */
bool openreg_signal_is_last_pending(const struct openreg_signal *signal, uint32_t point);

/* Marks all points as reached. Ending them later has no effect. */
void openreg_signal_finish_all(struct openreg_signal *signal);

/* ---- in any process -------------------------------------------------------------------------- */

bool openreg_shared_signal_reached(const struct openreg_shared_signal *signal, uint32_t point);

/* Waits until the point is reached. Returns false if the deadline passes first. The process that
 * should reach the point may have died, so wait for a limited time and check. */
bool openreg_shared_signal_wait(struct openreg_shared_signal *signal, uint32_t point,
                                int64_t deadline_ns);

#pragma GCC visibility pop
#endif
