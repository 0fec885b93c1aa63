/* range_lock.c: the system calls behind range_lock.h. */
#define _GNU_SOURCE /* F_OFD_SETLK */
#include "base/range_lock.h"

#include <errno.h>
#include <fcntl.h>

static int control(int file, int command, struct flock *range) {
  int result;
  do
    result = fcntl(file, command, range);
  while (result != 0 && errno == EINTR);
  return result;
}

static struct flock range_of(short type, uint64_t start, uint64_t bytes) {
  return (struct flock){
      .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)start, .l_len = (off_t)bytes};
}

bool openreg_range_lock_try(int file, short type, uint64_t start, uint64_t bytes) {
  struct flock range = range_of(type, start, bytes);
  return control(file, F_OFD_SETLK, &range) == 0;
}

void openreg_range_lock_release(int file, uint64_t start, uint64_t bytes) {
  struct flock range = range_of(F_UNLCK, start, bytes);
  (void)control(file, F_OFD_SETLK, &range);
}

bool openreg_range_lock_find(int file, uint64_t *start, uint64_t *bytes) {
  uint64_t first = *start, end = *start + *bytes;
  struct flock range = range_of(F_WRLCK, first, *bytes);
  if (control(file, F_OFD_GETLK, &range) != 0 || range.l_type == F_UNLCK)
    return false;
  uint64_t found = (uint64_t)range.l_start > first ? (uint64_t)range.l_start : first;
  /* A length of 0 means: to the end of the file. */
  uint64_t found_end = range.l_len == 0 ? end : (uint64_t)range.l_start + (uint64_t)range.l_len;
  *start = found;
  *bytes = (found_end < end ? found_end : end) - found;
  return true;
}
