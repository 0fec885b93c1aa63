/* segment_file.h: between segment.c and id.c, which holds the files of segments open for others. */
#ifndef OPENREG_COLLECTIVES_SEGMENT_FILE_H
#define OPENREG_COLLECTIVES_SEGMENT_FILE_H

#include "collectives/comm_shm.h"

#pragma GCC visibility push(hidden)

/* How long the file is. */
uint64_t openreg_segment_bytes(int size);

/* Fills in the head of a file of zeros. */
void openreg_segment_begin(struct openreg_segment *segment, int size, uint64_t nonce);

void openreg_segment_name_write(struct openreg_segment_name name, openreg_comm_id *id);

/* Opens the file; -1, with the reason, when it is not to be had. */
int openreg_segment_open(const struct openreg_segment_name *name, const char **fault);

#pragma GCC visibility pop
#endif
