/* proc.h: files that are opened again through /proc.
 *
 * A lock of range_lock.h belongs to the description of a file that open makes, and so does what a
 * mapping keeps alive: where the two must not be one, the file is opened once more. Files without a
 * name, and those of other processes, can be opened again only where /proc names them.
 */
#ifndef OPENREG_BASE_PROC_H
#define OPENREG_BASE_PROC_H

#pragma GCC visibility push(hidden)

enum { OPENREG_PROC_PATH_BYTES = 40 };

/* The path of a descriptor of this process. */
void openreg_proc_path(int file, char path[OPENREG_PROC_PATH_BYTES]);

/* A description of its own of the same file, for reading and writing; -1, with errno, when that is
 * refused. */
int openreg_proc_reopen(int file);

/* What to say of an error of a call that went through /proc: as strerror, or that there is no
 * /proc. */
const char *openreg_proc_error(int error);

#pragma GCC visibility pop
#endif
