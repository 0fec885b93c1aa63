/* proc.c: see proc.h. */
#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FOLDER "/proc/self/fd"

void openreg_proc_path(int file, char path[OPENREG_PROC_PATH_BYTES]) {
  snprintf(path, OPENREG_PROC_PATH_BYTES, FOLDER "/%d", file);
}

int openreg_proc_reopen(int file) {
  char path[OPENREG_PROC_PATH_BYTES];
  openreg_proc_path(file, path);
  return open(path, O_RDWR | O_CLOEXEC);
}

const char *openreg_proc_error(int error) {
  if (access(FOLDER, F_OK) != 0 && errno == ENOENT)
    return "/proc is not mounted, but this operation needs it";
  return strerror(error);
}
