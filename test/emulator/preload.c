/* preload.c: a library that the emulator of tools/aarch64/emulate loads into each test program.
 *
 * It leaves out the cases that tools/aarch64/left-out.txt lists for the program. A name that is not
 * a case of the program fails the program, so the list cannot become stale.
 *
 * It also hides one fault of QEMU: a process that reads its own /proc/PID/stat gets a start time
 * that the emulator made up, and other processes read the real one. So the ranks of a communicator
 * would take each other for dead. QEMU recognizes the file by its absolute path; here the path is
 * relative to /proc.
 */
#define _GNU_SOURCE /* RTLD_NEXT, O_TMPFILE */
#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* ---- cases ----------------------------------------------------------------------------------- */

enum { MAX_CASES = 256 };

static struct CMUnitTest kept[MAX_CASES];
static size_t kept_count;

/* `names` has blanks around each name. */
static bool is_in(const char *names, const char *name) {
  char padded[256];
  snprintf(padded, sizeof padded, " %s ", name);
  return strstr(names, padded) != NULL;
}

static size_t count_words(const char *names) {
  size_t count = 0;
  for (; *names != '\0'; names++)
    count += names[0] != ' ' && (names[1] == ' ' || names[1] == '\0');
  return count;
}

int _cmocka_run_group_tests(const char *group, const struct CMUnitTest *const tests,
                            const size_t count, CMFixtureFunction set_up,
                            CMFixtureFunction tear_down) {
  int (*run)(const char *, const struct CMUnitTest *, size_t, CMFixtureFunction,
             CMFixtureFunction) = NULL;
  *(void **)&run = dlsym(RTLD_NEXT, "_cmocka_run_group_tests");
  const char *left_out = getenv("LEFT_OUT_CASES");
  for (size_t i = 0; i < count && i < MAX_CASES; i++) {
    if (left_out != NULL && is_in(left_out, tests[i].name))
      printf("[ LEFT OUT ] %s\n", tests[i].name);
    else
      kept[kept_count++] = tests[i];
  }
  size_t expected = left_out == NULL ? 0 : count_words(left_out);
  if (run == NULL || count > MAX_CASES || count - kept_count != expected) {
    printf("%zu of %zu cases were left out, expected %zu: see tools/aarch64/left-out.txt\n",
           count - kept_count, count, expected);
    return 1;
  }
  return run(group, kept, kept_count, set_up, tear_down);
}

/* ---- /proc/PID/stat -------------------------------------------------------------------------- */

static bool is_stat_file(const char *path, char relative[32]) {
  int pid, length = 0;
  if (sscanf(path, "/proc/%d/stat%n", &pid, &length) != 1 || length == 0 || path[length] != '\0')
    return false;
  snprintf(relative, 32, "%d/stat", pid);
  return true;
}

static int open_stat_file(const char *relative, int flags) {
  int folder = openat(AT_FDCWD, "/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0)
    return -1;
  int file = openat(folder, relative, flags);
  close(folder);
  return file;
}

int open64(const char *path, int flags, ...) {
  char relative[32];
  mode_t mode = 0;
  if (is_stat_file(path, relative))
    return open_stat_file(relative, flags);
  if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
  }
  return openat64(AT_FDCWD, path, flags, mode);
}
