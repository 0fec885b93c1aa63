/* range_lock.h: kernel locks on byte ranges of a file ("open file description locks").
 *
 * A lock belongs to the open file description. It ends when the process that opened the file exits,
 * in whatever way. Threads of one process that share a descriptor do not exclude each other. The
 * description must not be used by a mapping or inherited by a forked child: both would keep it and
 * its locks alive. proc.h opens another description of the same file.
 */
#ifndef OPENREG_BASE_RANGE_LOCK_H
#define OPENREG_BASE_RANGE_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* `type` is F_RDLCK or F_WRLCK. Does not wait; returns false if another description holds a
 * conflicting lock. */
bool openreg_range_lock_try(int file, short type, uint64_t start, uint64_t bytes);
void openreg_range_lock_release(int file, uint64_t start, uint64_t bytes);

/* Finds a part of the range that another description has locked. Returns false if there is none. */
bool openreg_range_lock_find(int file, uint64_t *start, uint64_t *bytes);

#pragma GCC visibility pop
#endif
