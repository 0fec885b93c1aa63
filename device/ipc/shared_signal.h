/* shared_signal.h: points in a process's work that other processes can wait for.
 *
 * The work's process numbers its points; two words, in memory that others map, say which was the
 * last and how far the work has come:
 *
 *     point n is reached  <=>  reached - n >= 0, as a signed difference: the words wrap around
 *
 * Points of different streams may be done in any order, but `reached` goes up by one number only
 * when all before it are done: to wait for a point is to wait for those before it too. Numbers go
 * on counting when the words come to stand for something else, so that who still waits for what
 * they were before does not wait for ever.
 */
#ifndef OPENREG_DEVICE_IPC_SHARED_SIGNAL_H
#define OPENREG_DEVICE_IPC_SHARED_SIGNAL_H

#include "device/device.h"

#include <stdatomic.h>

#pragma GCC visibility push(hidden)

struct openreg_shared_signal {
  _Atomic uint32_t recorded; /* the last point that may be waited for */
  _Atomic uint32_t reached;  /* a futex */
};

/* ---- by the process whose work it is; under a lock of the caller's --------------------------- */

struct openreg_signal {
  struct openreg_shared_signal *shared;
  uint32_t issued;
  struct openreg_pending *first, *last; /* points whose work is not done, in the order of numbers */
};

/* A point whose work is done. */
uint32_t openreg_signal_mark(struct openreg_signal *signal);

/* A point whose work is not done, which is to be ended. Errors: OUT_OF_MEMORY. */
openreg_status openreg_signal_begin(struct openreg_signal *signal, uint32_t *point);
void openreg_signal_end(struct openreg_signal *signal, uint32_t point);

/* Lets others wait for the point; false when they wait for a later one already. */
bool openreg_signal_publish(struct openreg_signal *signal, uint32_t point);

/* Whether the work of all points is done. */
static inline bool openreg_signal_is_done(const struct openreg_signal *signal) {
  return signal->first == NULL;
}

/* Whether it will be when this one has ended. */
bool openreg_signal_is_last_undone(const struct openreg_signal *signal, uint32_t point);

/* All points are as if reached, and ending them later does nothing. */
void openreg_signal_reach_all(struct openreg_signal *signal);

/* ---- by any process -------------------------------------------------------------------------- */

bool openreg_shared_signal_reached(const struct openreg_shared_signal *signal, uint32_t point);

/* Waits until the point is reached; false when the deadline passed before it was. The process that
 * should reach it may have died: wait for a while, and look. */
bool openreg_shared_signal_wait(struct openreg_shared_signal *signal, uint32_t point,
                                int64_t deadline_ns);

#pragma GCC visibility pop
#endif
