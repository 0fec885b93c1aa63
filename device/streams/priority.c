/* priority.c: work of high-priority streams begins before that of others.
 *
 * As on a GPU, priority is about what begins next: nothing that runs is stopped. Work that is
 * submitted to a high-priority stream whose turn it is at once (the stream was idle) is counted
 * from before it is published until its worker begins it. While any is counted, workers of the
 * device's other streams begin no function: one that has a core gives it up here, which is what
 * lets a high-priority worker start where cores are scarce. Work further back in a high-priority
 * stream is not counted, for it needs no core yet; its worker goes on to it without sleeping.
 *
 * Nobody waits here for work to finish, only for a runnable thread to be given a core, so that
 * functions that wait for each other on different streams cannot be locked out. Where the system
 * permits it, high-priority workers also run at a better nice value (worker.c).
 */
#include "device/streams/stream.h"

#include <assert.h>

static struct gate {
  _Alignas(OPENREG_CACHE_LINE_BYTES) _Atomic uint32_t ready; /* how many are counted */
  _Atomic uint32_t yielding;                                 /* how many threads sleep on that */
} gates[OPENREG_MAX_DEVICES];

void openreg_priority_add(int device) {
  atomic_fetch_add(&gates[device].ready, 1);
}

void openreg_priority_remove(int device) {
  struct gate *gate = &gates[device];
  uint32_t before = atomic_fetch_sub(&gate->ready, 1);
  assert(before > 0);
  if (before == 1 && atomic_load(&gate->yielding) > 0)
    openreg_futex_wake(&gate->ready, OPENREG_WAKE_ALL);
}

bool openreg_priority_must_yield(int device) {
  return atomic_load(&gates[device].ready) > 0;
}

void openreg_priority_yield(int device) {
  struct gate *gate = &gates[device];
  uint32_t ready;
  if (!openreg_priority_must_yield(device))
    return;
  atomic_fetch_add(&gate->yielding, 1);
  while ((ready = atomic_load(&gate->ready)) > 0)
    openreg_futex_wait(&gate->ready, ready, OPENREG_NEVER);
  atomic_fetch_sub(&gate->yielding, 1);
}

int openreg_priority_yielding(int device) {
  return (int)atomic_load(&gates[device].yielding);
}
