/* priority.c: work of high-priority streams begins before work of other streams.
 *
 * As on a GPU, priority decides what begins next; running work is not stopped. Work submitted to an
 * idle high-priority stream is counted from before its publication until its worker begins it.
 * While any work is counted, workers of the device's other streams begin no function. A worker that
 * has a core gives it up here, so that a high-priority worker can start when cores are scarce. Work
 * further back in a high-priority stream is not counted, because it needs no core yet: its worker
 * continues with it without sleeping.
 *
 * Nothing here waits for work to finish, only for a runnable thread to get a core. So functions on
 * different streams that wait for each other cannot deadlock because of priorities. If the system
 * permits it, high-priority workers also run at a better nice value (worker.c).
 */
#include "device/streams/stream.h"

#include <assert.h>

static struct gate {
  _Alignas(OPENREG_CACHE_LINE_BYTES) _Atomic uint32_t ready; /* amount of counted work; a futex */
  _Atomic uint32_t yielding; /* number of threads that sleep on `ready` */
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
