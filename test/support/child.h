/* child.h: runs a piece of a test in a process of its own.
 *
 * A process reads its environment and initializes once, so whatever needs another environment, an
 * uninitialized layer or a death runs in a child that is forked before anything is initialized.
 * cmocka's assertions belong to the parent; a child uses REQUIRE, which ends it.
 */
#ifndef OPENREG_TEST_CHILD_H
#define OPENREG_TEST_CHILD_H

#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

typedef struct child_result {
  int wait_status;
  char errors[8192]; /* what it wrote to stderr, cut */
} child_result;

/* Forks, sets the variables ("NAME=value", NULL at the end) in an environment that is clear of
 * openreg's and hwloc's but for a group of its own, resets SIGSEGV and SIGBUS to their default,
 * runs `body`, exits with 0. */
void child_run(child_result *result, void (*body)(void), const char *const variables[]);

/* Fails the test, showing what the child wrote, unless it exited with 0. */
void child_expect_pass(void (*body)(void), const char *const variables[]);

/* As above, for a child that must die by a signal. Returns what it wrote in `result`. */
void child_expect_signal(child_result *result, int signal_number, void (*body)(void),
                         const char *const variables[]);

/* Ends the process with a sentence on stderr. */
_Noreturn void child_give_up(const char *file, int line, const char *what);

/* The group of this process, as a snapshot names it. */
const char *child_group(void);

/* Where the control file of a group of this user is. */
const char *child_control_file(const char *group);

#define REQUIRE(condition) ((condition) ? (void)0 : child_give_up(__FILE__, __LINE__, #condition))
#define REQUIRE_OK(call)   REQUIRE((call) == OPENREG_OK)

/* Environment of most tests: `const char *const variables[]`. */
#define ENVIRONMENT(...) ((const char *const[]){__VA_ARGS__, NULL})
#define SMALL_DEVICES    ENVIRONMENT("OPENREG_DEVICE_COUNT=2", "OPENREG_DEVICE_MEMORY=64M")

/* A test whose body runs in a child with this environment. */
#define CHILD_TEST_IN(name, environment)                                                           \
  static void name##_body(void);                                                                   \
  static void name(void **state) {                                                                 \
    (void)state;                                                                                   \
    child_expect_pass(name##_body, environment);                                                   \
  }                                                                                                \
  static void name##_body(void)

/* A test whose body runs in a child with two small devices. */
#define CHILD_TEST(name) CHILD_TEST_IN(name, SMALL_DEVICES)

/* Runs `body` in a child forked now, and requires that it exits with 0: for forks after
 * initialization, from within a child. */
void child_fork_and_require(void (*body)(void));

/* How many descriptors this process has. Within a child. */
int count_descriptors(void);

#endif
