/* shared_signal.c: updates signals and waits for them. See shared_signal.h. */
#define _GNU_SOURCE /* syscall */
#include "device/ipc/shared_signal.h"

#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/futex.h"

struct openreg_pending {
  uint32_t point;
  struct openreg_pending *next;
};

static bool is_at_least(uint32_t one, uint32_t other) {
  return (int32_t)(one - other) >= 0;
}

/* ---- in the process that does the work ------------------------------------------------------- */

static void advance(struct openreg_signal *signal) {
  uint32_t reached = signal->first == NULL ? signal->issued : signal->first->point - 1;
  if (atomic_load(&signal->shared->reached) == reached)
    return;
  atomic_store(&signal->shared->reached, reached);
  /* Not private, because other processes wait. */
  syscall(SYS_futex, &signal->shared->reached, FUTEX_WAKE, OPENREG_WAKE_ALL, NULL, NULL, 0);
}

uint32_t openreg_signal_mark(struct openreg_signal *signal) {
  uint32_t point = ++signal->issued;
  openreg_signal_publish(signal, point);
  advance(signal);
  return point;
}

openreg_status openreg_signal_begin(struct openreg_signal *signal, uint32_t *point) {
  struct openreg_pending *pending = malloc(sizeof *pending);
  if (pending == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY,
                        "openreg: no host memory for a point that other processes wait for");
  *point = ++signal->issued;
  *pending = (struct openreg_pending){.point = *point};
  if (signal->first == NULL)
    signal->first = pending;
  else
    signal->last->next = pending;
  signal->last = pending;
  return OPENREG_OK;
}

void openreg_signal_end(struct openreg_signal *signal, uint32_t point) {
  struct openreg_pending *before = NULL, *pending = signal->first;
  while (pending != NULL && pending->point != point) {
    before = pending;
    pending = pending->next;
  }
  if (pending == NULL)
    return;
  if (before == NULL)
    signal->first = pending->next;
  else
    before->next = pending->next;
  if (signal->last == pending)
    signal->last = before;
  free(pending);
  advance(signal);
}

bool openreg_signal_publish(struct openreg_signal *signal, uint32_t point) {
  if (!is_at_least(point, atomic_load(&signal->shared->recorded)))
    return false;
  atomic_store(&signal->shared->recorded, point);
  return true;
}

bool openreg_signal_is_last_pending(const struct openreg_signal *signal, uint32_t point) {
  return signal->first != NULL && signal->first == signal->last && signal->first->point == point;
}

void openreg_signal_finish_all(struct openreg_signal *signal) {
  while (signal->first != NULL) {
    struct openreg_pending *pending = signal->first;
    signal->first = pending->next;
    free(pending);
  }
  signal->last = NULL;
  openreg_signal_publish(signal, signal->issued);
  advance(signal);
}

/* ---- in any process -------------------------------------------------------------------------- */

bool openreg_shared_signal_reached(const struct openreg_shared_signal *signal, uint32_t point) {
  return is_at_least(atomic_load(&signal->reached), point);
}

static void sleep_while(_Atomic uint32_t *word, uint32_t expected, int64_t deadline_ns) {
  struct timespec deadline = {.tv_sec = deadline_ns / 1000000000,
                              .tv_nsec = deadline_ns % 1000000000};
  syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected,
          deadline_ns == OPENREG_NEVER ? NULL : &deadline, NULL, FUTEX_BITSET_MATCH_ANY);
}

bool openreg_shared_signal_wait(struct openreg_shared_signal *signal, uint32_t point,
                                int64_t deadline_ns) {
  for (int i = openreg_spin_count(); i > 0; i--) {
    if (openreg_shared_signal_reached(signal, point))
      return true;
    openreg_spin_pause(i);
  }
  for (;;) {
    uint32_t reached = atomic_load(&signal->reached);
    if (is_at_least(reached, point))
      return true;
    if (openreg_now_ns() >= deadline_ns)
      return false;
    sleep_while(&signal->reached, reached, deadline_ns);
  }
}
