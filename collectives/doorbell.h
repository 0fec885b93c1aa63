/* doorbell.h: sleeping until another thread, of whichever process, rings; and the look before it.
 *
 * A word in the control segment. As with futex.h: whoever brings something about writes it and then
 * rings; whoever waits says that it sleeps and then looks, so that no ring is lost.
 */
#ifndef OPENREG_COLLECTIVES_DOORBELL_H
#define OPENREG_COLLECTIVES_DOORBELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct openreg_doorbell {
  _Atomic uint32_t rings, sleepers; /* who was killed asleep stays counted: that costs a call */
};

void openreg_doorbell_ring(struct openreg_doorbell *bell);

/* Returns true as soon as `look` does, which is asked `looks` times before sleeping, at least once,
 * and after each ring; false when the deadline has passed. */
bool openreg_doorbell_await(struct openreg_doorbell *bell, int looks, int64_t deadline_ns,
                            bool (*look)(void *), void *context);

#pragma GCC visibility pop
#endif
