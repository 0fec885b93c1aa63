/* Children of tests: see child.h. */
#include "child.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GROUP_BYTES = 64 };

static void clear_variables(void) {
  static const char *const names[] = {
      "OPENREG_DEVICE_COUNT", "OPENREG_DEVICE_MEMORY",   "OPENREG_PROFILE",
      "OPENREG_GROUP",        "OPENREG_LAUNCH_BLOCKING", "OPENREG_HOST_ACCESS",
      "HWLOC_SYNTHETIC",      "HWLOC_XMLFILE",           "HWLOC_THISSYSTEM",
      "HWLOC_COMPONENTS",     "OPENREG_BLOCK_OPERATORS", "OPENREG_UNSUPPORTED_DTYPES",
      "OPENREG_DEBUG_MEMORY", "OPENREG_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES",
      "OPENREG_DEVICE_TYPE",
  };
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    unsetenv(names[i]);
}

/* Devices are shared by the processes of a group: a test has one of its own. The time is in its
 * name, for containers that share /dev/shm have processes of the same number. */
static void choose_group(char group[GROUP_BYTES]) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  snprintf(group, GROUP_BYTES, "test-%d-%llx%08lx", (int)getpid(), (unsigned long long)now.tv_sec,
           (unsigned long)now.tv_nsec);
}

const char *child_group(void) {
  static char name[2 * GROUP_BYTES];
  snprintf(name, sizeof name, "group-%s", getenv("OPENREG_GROUP"));
  return name;
}

const char *child_control_file(const char *group) {
  static char path[4 * GROUP_BYTES];
  snprintf(path, sizeof path, "/dev/shm/openreg-%u/%s", geteuid(), group);
  return path;
}

/* What a child leaves behind that was killed, or was the last of its group and called _exit. */
static void remove_control_file(const char *group) {
  char name[2 * GROUP_BYTES];
  snprintf(name, sizeof name, "group-%s", group);
  unlink(child_control_file(name));
}

static void set_variables(const char *const variables[]) {
  for (int i = 0; variables != NULL && variables[i] != NULL; i++) {
    char name[64];
    size_t length = strcspn(variables[i], "=");
    snprintf(name, sizeof name, "%.*s", (int)length, variables[i]);
    setenv(name, variables[i] + length + 1, 1);
  }
}

static _Noreturn void be_the_child(int errors, const char *group, void (*body)(void),
                                   const char *const variables[]) {
  dup2(errors, STDERR_FILENO);
  close(errors);
  clear_variables();
  setenv("OPENREG_GROUP", group, 1);
  set_variables(variables);
  /* A sanitizer's handlers would turn a death by a signal into an exit. */
  signal(SIGSEGV, SIG_DFL);
  signal(SIGBUS, SIG_DFL);
  body();
  exit(0);
}

static void read_all(int file, char *text, size_t text_bytes) {
  char piece[1024];
  size_t used = 0;
  for (ssize_t got; (got = read(file, piece, sizeof piece)) > 0;) {
    size_t kept = (size_t)got < text_bytes - 1 - used ? (size_t)got : text_bytes - 1 - used;
    memcpy(text + used, piece, kept);
    used += kept;
  }
  text[used] = '\0';
}

void child_run(child_result *result, void (*body)(void), const char *const variables[]) {
  char group[GROUP_BYTES];
  int ends[2];
  choose_group(group);
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    close(ends[0]);
    be_the_child(ends[1], group, body, variables);
  }
  close(ends[1]);
  read_all(ends[0], result->errors, sizeof result->errors);
  close(ends[0]);
  assert_int_equal(waitpid(child, &result->wait_status, 0), child);
  remove_control_file(group);
}

void child_expect_pass(void (*body)(void), const char *const variables[]) {
  child_result result;
  child_run(&result, body, variables);
  if (!WIFEXITED(result.wait_status) || WEXITSTATUS(result.wait_status) != 0)
    fail_msg("the child ended with wait status %#x and wrote:\n%s", (unsigned)result.wait_status,
             result.errors);
}

void child_expect_signal(child_result *result, int signal_number, void (*body)(void),
                         const char *const variables[]) {
  child_run(result, body, variables);
  if (!WIFSIGNALED(result->wait_status) || WTERMSIG(result->wait_status) != signal_number)
    fail_msg("the child ended with wait status %#x and wrote:\n%s", (unsigned)result->wait_status,
             result->errors);
}

_Noreturn void child_give_up(const char *file, int line, const char *what) {
  fprintf(stderr, "%s:%d: required: %s (last error: %s)\n", file, line, what, openreg_last_error());
  fflush(stderr);
  _exit(1);
}

void child_fork_and_require(void (*body)(void)) {
  fflush(NULL);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    body();
    _exit(0);
  }
  int wait_status;
  REQUIRE(waitpid(child, &wait_status, 0) == child);
  REQUIRE(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
}

int count_descriptors(void) {
  DIR *folder = opendir("/proc/self/fd");
  REQUIRE(folder != NULL);
  int count = 0;
  while (readdir(folder) != NULL)
    count++;
  closedir(folder);
  return count;
}
