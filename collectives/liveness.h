/* liveness.h: whether a process lives; a number alone may by now be another one's. */
#ifndef OPENREG_COLLECTIVES_LIVENESS_H
#define OPENREG_COLLECTIVES_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* When a process was started, in the clock ticks of /proc; 0 when it has ended or cannot be seen.
 */
uint64_t openreg_process_started(int pid);

/* A descriptor that polls as readable when the process has ended; -1 when there is none to be had,
 * because the system refuses or because it has ended. */
int openreg_process_watch(int pid);

#pragma GCC visibility pop
#endif
