/* helper.h: helper processes that a test controls.
 *
 * The test runs in its own child process (child.h), which forks its helpers before it initializes
 * devices. The helpers are killed if the test process ends.
 */
#ifndef OPENREG_TEST_HELPER_H
#define OPENREG_TEST_HELPER_H

#include "child.h"
#include "device/device.h"

#include <sys/types.h>

typedef struct helper {
  pid_t pid;
  int commands, reports;
} helper;

/* ---- for the test process -------------------------------------------------------------------- */

/* Forks a process that runs `body` and then calls exit(0). */
helper helper_start(void (*body)(void));

/* Waits for the helper's next report and returns it. */
uint64_t helper_receive(helper *helper);

/* Lets the helper return from its next (or present) await_cue. */
void helper_cue(helper *helper);

/* Cues the helper, and waits for its next report. */
uint64_t helper_step(helper *helper);

/* Kills the helper with SIGKILL, and waits for its end. */
void helper_kill(helper *helper);

/* Waits until the helper has ended with exit(0). */
void helper_finish(helper *helper);

/* Cues the helper for the last time, and waits for its end as above. */
void helper_dismiss(helper *helper);

/* ---- for the helper -------------------------------------------------------------------------- */

void report(uint64_t what);
void await_cue(void);

#endif
