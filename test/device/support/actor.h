/* actor.h: other processes, which act when a test tells them to.
 *
 * A test directs them in a child of its own (child.h), which forks them before it initializes
 * anything. They are killed with their director.
 */
#ifndef OPENREG_TEST_ACTOR_H
#define OPENREG_TEST_ACTOR_H

#include "child.h"
#include "device/device.h"

#include <sys/types.h>

typedef struct actor {
  pid_t pid;
  int commands, reports;
} actor;

/* ---- for the director ------------------------------------------------------------------------ */

/* Forks a process that runs `body` and then exits with 0, by exit(). */
actor actor_start(void (*body)(void));

/* Waits for the actor's next report; returns what it reported. */
uint64_t actor_hear(actor *actor);

/* Lets the actor return from its next, or present, await_cue. */
void actor_cue(actor *actor);

/* Cues it, and waits for its next report, which is returned. */
uint64_t actor_step(actor *actor);

/* Kills it with SIGKILL, and waits until it is dead and gone. */
void actor_kill(actor *actor);

/* Waits until it has ended, which must be by exit(0). */
void actor_finish(actor *actor);

/* Cues it for the last time, and waits until it has ended as above. */
void actor_dismiss(actor *actor);

/* ---- for the actor --------------------------------------------------------------------------- */

void report(uint64_t what);
void await_cue(void);

#endif
