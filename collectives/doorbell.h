/* doorbell.h: sleeping until a thread of any process rings, after spinning briefly.
 *
 * A doorbell is a futex word in the control segment. As in futex.h, no ring is lost: a thread that
 * changes something writes the change first and then rings; a thread that waits first counts itself
 * as a sleeper and then checks its condition.
 */
#ifndef OPENREG_COLLECTIVES_DOORBELL_H
#define OPENREG_COLLECTIVES_DOORBELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct openreg_doorbell {
  /* A process that was killed asleep stays counted, which costs a needless system call for each
   * ring.
   */
  _Atomic uint32_t rings, sleepers;
};

void openreg_doorbell_ring(struct openreg_doorbell *bell);

/* Waits until `condition(context)` returns true, and returns true; or returns false when the
 * deadline has passed. Checks the condition `spins` times before it sleeps, at least once, and
 * after each ring. */
bool openreg_doorbell_wait(struct openreg_doorbell *bell, int spins, int64_t deadline_ns,
                           bool (*condition)(void *), void *context);

#pragma GCC visibility pop
#endif
