/* busy.h: how long the streams of a device have had work running: its meter, and whether anybody
 * reads it.
 *
 * A meter is one number, so that work which begins or ends changes it by one atomic addition, and
 * whoever reads it, in another process, has it whole. In ticks of 1024 ns of CLOCK_MONOTONIC:
 *
 *     meter = running * 2^54 + (time of work that has ended) - (sum of the times when what runs
 *             began)
 *     busy until now = time of work that has ended + what runs * now - sum of those times
 *
 * Up to 65 streams run; 65 * now stays below 2^53 for four years after the machine was started. A
 * time is cut to ticks where it begins and where it ends, so short work is right on the average.
 *
 * Workers always count: they read the clock when they begin to have work and when they have none
 * any more, where they were asleep or will be. Inline work is begun and ended in less time than the
 * clock is read, so it counts only while somebody reads the meter, which one load tells.
 *
 * The meters are this process's own until the ledger puts them where others see them, which it does
 * before there is any work, and takes them back when the process ends.
 */
#ifndef OPENREG_DEVICE_STREAMS_BUSY_H
#define OPENREG_DEVICE_STREAMS_BUSY_H

#include "device/device.h"

#include <stdatomic.h>

#pragma GCC visibility push(hidden)

struct openreg_meters {
  _Atomic(_Atomic int64_t *) of_number;        /* in the group: OPENREG_MAX_DEVICES of them */
  _Atomic(_Atomic int64_t *) watched_until_ns; /* as openreg_now_ns; 0: nobody reads */
};

extern struct openreg_meters openreg_meters;

/* NULL: the process's own. */
void openreg_busy_publish(_Atomic int64_t of_number[], _Atomic int64_t *watched_until_ns);

/* Work begins and ends on a stream of the device. */
void openreg_busy_begin(int device);
void openreg_busy_end(int device);

/* Whether somebody may be reading: to be asked before the clock is. */
static inline bool openreg_busy_may_be_watched(void) {
  _Atomic int64_t *until_ns =
      atomic_load_explicit(&openreg_meters.watched_until_ns, memory_order_relaxed);
  return atomic_load_explicit(until_ns, memory_order_relaxed) != 0;
}

/* As openreg_busy_begin, if somebody reads; else false, and openreg_busy_end is not to be called.
 */
bool openreg_busy_begin_if_watched(int device);

/* ---- for readers ----------------------------------------------------------------------------- */

int64_t openreg_busy_now_ticks(void);

/* Ticks in which work ran until `now_ticks`, of whatever a meter of another process says: 0 or
 * more. */
int64_t openreg_busy_ticks(int64_t meter, int64_t now_ticks);

#pragma GCC visibility pop
#endif
