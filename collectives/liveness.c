/* liveness.c: see liveness.h. */
#define _GNU_SOURCE /* syscall */
#include "collectives/liveness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum sight { UNKNOWN, GONE, SEEN };

/* proc(5): "pid (name) state ppid ...", the 22nd is when it was started. The name may hold
 * anything, brackets and blanks too. */
static enum sight parse(const char *text, uint64_t *started) {
  const char *field = strrchr(text, ')');
  if (field == NULL || field[1] != ' ')
    return UNKNOWN;
  if (field[2] == 'Z' || field[2] == 'X')
    return GONE;
  for (int number = 2; number < 22 && field != NULL; number++)
    field = strchr(field + 1, ' ');
  if (field == NULL)
    return UNKNOWN;
  *started = strtoull(field, NULL, 10);
  return SEEN;
}

static enum sight look_at(int pid, uint64_t *started) {
  char path[32], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return errno == ENOENT ? GONE : UNKNOWN;
  ssize_t bytes = read(file, text, sizeof text - 1);
  int error = errno;
  close(file);
  if (bytes <= 0)
    return bytes < 0 && error == ESRCH ? GONE : UNKNOWN;
  text[bytes] = '\0';
  return parse(text, started);
}

uint64_t openreg_process_started(int pid) {
  uint64_t started;
  return look_at(pid, &started) == SEEN ? started : 0;
}

bool openreg_process_has_ended(int pid, uint64_t started) {
  uint64_t seen;
  enum sight sight = look_at(pid, &seen);
  return sight == GONE || (sight == SEEN && started != 0 && seen != started);
}

int openreg_process_watch(int pid) {
  return (int)syscall(SYS_pidfd_open, pid, 0);
}
