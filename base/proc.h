/* proc.h: reopens files through /proc.
 *
 * Locks of range_lock.h belong to an open file description. Mappings and forked children keep
 * descriptions alive. Where a lock must not share a description with a mapping, the file is opened
 * once more. Files without a name, and files of other processes, can only be reopened through
 * /proc.
 */
#ifndef OPENREG_BASE_PROC_H
#define OPENREG_BASE_PROC_H

#pragma GCC visibility push(hidden)

enum { OPENREG_PROC_PATH_BYTES = 40 };

/* The /proc path of a descriptor of this process. */
void openreg_proc_path(int file, char path[OPENREG_PROC_PATH_BYTES]);

/* Opens the same file again for reading and writing, with its own description. Returns -1 and sets
 * errno on failure. */
int openreg_proc_reopen(int file);

/* Error text for a call that used /proc: strerror's, or a hint that /proc is not mounted. */
const char *openreg_proc_error(int error);

#pragma GCC visibility pop
#endif
