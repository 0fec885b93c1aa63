/* status.h: sentences, as the layers themselves need them beside base.h. */
#ifndef OPENREG_BASE_STATUS_H
#define OPENREG_BASE_STATUS_H

#include "base/base.h"

#pragma GCC visibility push(hidden)

/* Longest sentence that openreg_last_error holds, its final zero included. */
enum { OPENREG_SENTENCE_BYTES = 1024 };

/* Forgets the calling thread's last sentence. */
void openreg_error_clear(void);

#pragma GCC visibility pop
#endif
