/* comm_shm_file.h: creating and opening the files of control segments, for comm_shm.c and id.c. */
#ifndef OPENREG_COLLECTIVES_COMM_SHM_FILE_H
#define OPENREG_COLLECTIVES_COMM_SHM_FILE_H

#include "collectives/comm_shm.h"

#pragma GCC visibility push(hidden)

/* The length of the file of a communicator of `size` ranks. */
uint64_t openreg_comm_shm_bytes(int size);

/* Initializes the header of a file of zeros. */
void openreg_comm_shm_init(struct openreg_comm_shm *shm, int size, uint64_t nonce);

void openreg_comm_shm_locator_encode(struct openreg_comm_shm_locator locator, openreg_comm_id *id);

/* Opens the file, which the caller closes. Returns -1 and sets `*fault` to the reason, a static
 * string, when it cannot. */
int openreg_comm_shm_open(const struct openreg_comm_shm_locator *locator, const char **fault);

#pragma GCC visibility pop
#endif
