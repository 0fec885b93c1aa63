/* liveness.c: finds out from /proc whether a process lives. See liveness.h. */
#define _GNU_SOURCE /* syscall */
#include "collectives/liveness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum peer_state { PEER_UNKNOWN, PEER_GONE, PEER_ALIVE };

/* proc(5): "pid (name) state ppid ..."; field 22 is the start time. The name may contain brackets
 * and blanks, so the parser starts at the last ')'. */
static enum peer_state parse(const char *text, uint64_t *started) {
  const char *field = strrchr(text, ')');
  if (field == NULL || field[1] != ' ')
    return PEER_UNKNOWN;
  if (field[2] == 'Z' || field[2] == 'X')
    return PEER_GONE;
  for (int number = 2; number < 22 && field != NULL; number++)
    field = strchr(field + 1, ' ');
  if (field == NULL)
    return PEER_UNKNOWN;
  *started = strtoull(field, NULL, 10);
  return PEER_ALIVE;
}

static enum peer_state probe_process(int pid, uint64_t *started) {
  char path[32], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return errno == ENOENT ? PEER_GONE : PEER_UNKNOWN;
  ssize_t bytes = read(file, text, sizeof text - 1);
  int error = errno;
  close(file);
  if (bytes <= 0)
    return bytes < 0 && error == ESRCH ? PEER_GONE : PEER_UNKNOWN;
  text[bytes] = '\0';
  return parse(text, started);
}

uint64_t openreg_process_started(int pid) {
  uint64_t started;
  return probe_process(pid, &started) == PEER_ALIVE ? started : 0;
}

bool openreg_process_has_ended(int pid, uint64_t started) {
  uint64_t seen;
  enum peer_state state = probe_process(pid, &seen);
  return state == PEER_GONE || (state == PEER_ALIVE && started != 0 && seen != started);
}

int openreg_process_open_pidfd(int pid) {
  return (int)syscall(SYS_pidfd_open, pid, 0);
}
