/* liveness.h: whether a process lives; a number alone may by now be another one's. */
#ifndef OPENREG_COLLECTIVES_LIVENESS_H
#define OPENREG_COLLECTIVES_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* When a process was started, in the clock ticks of /proc; 0: not known. */
uint64_t openreg_process_started(int pid);

/* Whether the process that was started then has ended; false, too, when that cannot be found out.
 * `started` may be 0: then the number alone counts. */
bool openreg_process_has_ended(int pid, uint64_t started);

/* A descriptor that polls as readable when the process has ended; -1 when there is none to be had,
 * because the system refuses or because it has ended. */
int openreg_process_watch(int pid);

#pragma GCC visibility pop
#endif
