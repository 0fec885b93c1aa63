/* liveness.h: watching another process; see also the end of collectives.h. */
#ifndef OPENREG_COLLECTIVES_LIVENESS_H
#define OPENREG_COLLECTIVES_LIVENESS_H

#include "collectives/collectives.h"

#pragma GCC visibility push(hidden)

/* Returns a descriptor that polls as readable when the process has ended; the caller closes it.
 * Returns -1 when the system provides none, or when the process has ended. */
int openreg_process_open_pidfd(int pid);

#pragma GCC visibility pop
#endif
