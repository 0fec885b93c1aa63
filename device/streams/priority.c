/* priority.c: work of a stream of higher priority begins before that of lower ones.
 *
 * As on a GPU, priority decides what begins next; running work is not stopped. Work submitted to an
 * idle stream of a rank above 0 is counted from before its publication until its worker begins it.
 * While any work is counted, workers of the device's streams of lower rank begin no function. A
 * worker that has a core gives it up here, so that the worker of higher rank can start when cores
 * are scarce. Work further back in a stream is not counted, because it needs no core yet: its
 * worker continues with it without sleeping.
 *
 * Nothing here waits for work to finish, only for a runnable thread to get a core. So functions on
 * different streams that wait for each other cannot deadlock because of priorities. If the system
 * permits it, workers of ranks above 0 also run at a better nice value (worker.c).
 */
#include "device/streams/stream.h"

#include <assert.h>

static struct gate {
  /* The amount of counted work of each rank. That of rank 0 is not counted. */
  _Alignas(OPENREG_CACHE_LINE_BYTES) _Atomic uint32_t ready[OPENREG_STREAM_PRIORITIES];
  _Atomic uint32_t emptied;  /* how many times an amount became 0 while a thread waited; a futex */
  _Atomic uint32_t yielding; /* number of threads that wait */
} gates[OPENREG_MAX_DEVICES];

void openreg_priority_add(int device, int rank) {
  atomic_fetch_add(&gates[device].ready[rank], 1);
}

void openreg_priority_remove(int device, int rank) {
  struct gate *gate = &gates[device];
  uint32_t before = atomic_fetch_sub(&gate->ready[rank], 1);
  assert(before > 0);
  if (before == 1 && atomic_load(&gate->yielding) > 0) {
    atomic_fetch_add(&gate->emptied, 1);
    openreg_futex_wake(&gate->emptied, OPENREG_WAKE_ALL);
  }
}

bool openreg_priority_must_yield(int device, int rank) {
  for (int higher = rank + 1; higher < OPENREG_STREAM_PRIORITIES; higher++)
    if (atomic_load(&gates[device].ready[higher]) > 0)
      return true;
  return false;
}

void openreg_priority_yield(int device, int rank) {
  struct gate *gate = &gates[device];
  atomic_fetch_add(&gate->yielding, 1);
  for (;;) {
    uint32_t emptied = atomic_load(&gate->emptied); /* read before the amounts */
    if (!openreg_priority_must_yield(device, rank))
      break;
    openreg_futex_wait(&gate->emptied, emptied, OPENREG_NEVER);
  }
  atomic_fetch_sub(&gate->yielding, 1);
}

int openreg_priority_yielding(int device) {
  return (int)atomic_load(&gates[device].yielding);
}
