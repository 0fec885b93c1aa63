/* busy_time.h: busy counters, which measure how long a device's streams have run work.
 *
 * A counter is a single number. Work that begins or ends updates it with one atomic addition, and
 * other processes can read it in one piece. It counts in ticks of 2048 ns of CLOCK_MONOTONIC:
 *
 *     counter = running * 2^54 + (ticks of finished work) - (sum of the start times)
 *     busy ticks until now = (ticks of finished work) + running * now - (sum of the start times)
 *
 * where `running` is the number of streams that run work, and the sums are over these.
 *
 * At most 129 streams run, and 129 * now stays below 2^53 until four years after the machine was
 * started. Start and end times are truncated to ticks, so short work is measured correctly on
 * average.
 *
 * Workers always count. They read the clock only when they become busy or idle, where they were
 * asleep or will sleep. Inline work takes less time than reading the clock, so it counts only while
 * some process samples utilization, which one load detects.
 *
 * The counters are private to the process until the ledger publishes them in the control file. It
 * does so before there is any work, and makes them private again when the process ends.
 */
#ifndef OPENREG_DEVICE_STREAMS_BUSY_TIME_H
#define OPENREG_DEVICE_STREAMS_BUSY_TIME_H

#include "device/device.h"

#include <stdatomic.h>

#pragma GCC visibility push(hidden)

enum { OPENREG_BUSY_TICK_NS = 2048 };

struct openreg_busy_counters {
  _Atomic(_Atomic int64_t *) by_group_index;   /* OPENREG_MAX_DEVICES counters, by group index */
  _Atomic(_Atomic int64_t *) sampled_until_ns; /* as openreg_now_ns returns; 0: nobody samples */
};

extern struct openreg_busy_counters openreg_busy_counters;

/* Uses these counters from now on. NULL: private ones. */
void openreg_busy_publish(_Atomic int64_t by_group_index[], _Atomic int64_t *sampled_until_ns);

/* Work begins or ends on a stream of the device. */
void openreg_busy_begin(int device);
void openreg_busy_end(int device);

/* Whether a process may be sampling; checked before reading the clock. */
static inline bool openreg_busy_is_sampled(void) {
  _Atomic int64_t *until_ns =
      atomic_load_explicit(&openreg_busy_counters.sampled_until_ns, memory_order_relaxed);
  return atomic_load_explicit(until_ns, memory_order_relaxed) != 0;
}

/* Like openreg_busy_begin if a process is sampling. Otherwise returns false, and the caller must
 * not call openreg_busy_end. */
bool openreg_busy_begin_if_sampled(int device);

/* ---- for readers ----------------------------------------------------------------------------- */

int64_t openreg_busy_now_ticks(void);

/* Busy ticks until `now_ticks` according to a counter. Never negative, whatever another process
 * wrote. */
int64_t openreg_busy_ticks(int64_t counter, int64_t now_ticks);

#pragma GCC visibility pop
#endif
