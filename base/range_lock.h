/* range_lock.h: locks of the kernel on ranges of bytes of a file.
 *
 * They belong to the open file description, so they end when the process that opened it ends, in
 * whichever way, and threads of one process that use one descriptor do not exclude each other. The
 * description must be one that neither a mapping nor a forked child refers to, for those keep it
 * and its locks alive (proc.h makes another of the same file).
 */
#ifndef OPENREG_BASE_RANGE_LOCK_H
#define OPENREG_BASE_RANGE_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* `type` is F_RDLCK or F_WRLCK. False at once when it cannot be had. */
bool openreg_range_lock_try(int file, short type, uint64_t start, uint64_t bytes);
void openreg_range_lock_release(int file, uint64_t start, uint64_t bytes);

/* A part of the range that others have; false when no other has any. */
bool openreg_range_lock_find(int file, uint64_t *start, uint64_t *bytes);

#pragma GCC visibility pop
#endif
