/* liveness.h: whether a process lives, beside collectives.h. */
#ifndef OPENREG_COLLECTIVES_LIVENESS_H
#define OPENREG_COLLECTIVES_LIVENESS_H

#include "collectives/collectives.h"

#pragma GCC visibility push(hidden)

/* A descriptor that polls as readable when the process has ended; -1 when there is none to be had,
 * because the system refuses or because it has ended. */
int openreg_process_watch(int pid);

#pragma GCC visibility pop
#endif
