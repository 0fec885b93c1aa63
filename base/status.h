/* status.h: limits and functions for messages that only the layers need, in addition to base.h. */
#ifndef OPENREG_BASE_STATUS_H
#define OPENREG_BASE_STATUS_H

#include "base/base.h"

#pragma GCC visibility push(hidden)

/* Size of the longest message that openreg_last_error can hold, including the terminating zero. */
enum { OPENREG_MESSAGE_BYTES = 1024 };

/* Clears the calling thread's last message. */
void openreg_error_clear(void);

#pragma GCC visibility pop
#endif
