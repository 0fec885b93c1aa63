/* doorbell.c: see doorbell.h. */
#define _GNU_SOURCE /* syscall */
#include "collectives/doorbell.h"

#include "base/futex.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Not FUTEX_PRIVATE: the sleeper and the ringer may be different processes. */
static void sleep_while(_Atomic uint32_t *word, uint32_t expected, int64_t deadline_ns) {
  struct timespec deadline = {.tv_sec = deadline_ns / 1000000000,
                              .tv_nsec = deadline_ns % 1000000000};
  syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected,
          deadline_ns == OPENREG_NEVER ? NULL : &deadline, NULL, FUTEX_BITSET_MATCH_ANY);
}

void openreg_doorbell_ring(struct openreg_doorbell *bell) {
  atomic_fetch_add(&bell->rings, 1);
  if (atomic_load(&bell->sleepers) > 0)
    syscall(SYS_futex, &bell->rings, FUTEX_WAKE, OPENREG_WAKE_ALL, NULL, NULL, 0);
}

static bool sleep_until(struct openreg_doorbell *bell, int64_t deadline_ns,
                        bool (*condition)(void *), void *context) {
  for (;;) {
    uint32_t rings = atomic_load(&bell->rings);
    if (condition(context))
      return true;
    if (deadline_ns != OPENREG_NEVER && openreg_now_ns() >= deadline_ns)
      return false;
    sleep_while(&bell->rings, rings, deadline_ns);
  }
}

bool openreg_doorbell_wait(struct openreg_doorbell *bell, int spins, int64_t deadline_ns,
                           bool (*condition)(void *), void *context) {
  for (int i = spins; i > 0; i--) {
    if (condition(context))
      return true;
    openreg_spin_pause(i);
  }
  atomic_fetch_add(&bell->sleepers, 1);
  bool is_true = sleep_until(bell, deadline_ns, condition, context);
  atomic_fetch_sub(&bell->sleepers, 1);
  return is_true;
}
