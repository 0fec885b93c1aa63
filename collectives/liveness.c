/* liveness.c: see liveness.h. */
#define _GNU_SOURCE /* syscall */
#include "collectives/liveness.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* proc(5): "pid (name) state ppid ...", the 22nd is when it was started. The name may hold
 * anything, brackets and blanks too. */
uint64_t openreg_process_started(int pid) {
  char path[32], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return 0;
  ssize_t bytes = read(file, text, sizeof text - 1);
  close(file);
  if (bytes <= 0)
    return 0;
  text[bytes] = '\0';
  const char *field = strrchr(text, ')');
  if (field == NULL || field[1] != ' ' || field[2] == 'Z' || field[2] == 'X')
    return 0;
  for (int number = 2; number < 22 && field != NULL; number++)
    field = strchr(field + 1, ' ');
  return field == NULL ? 0 : strtoull(field, NULL, 10);
}

int openreg_process_watch(int pid) {
  return (int)syscall(SYS_pidfd_open, pid, 0);
}
