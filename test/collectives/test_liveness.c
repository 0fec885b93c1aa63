/* Detects processes that have ended, are zombies, or have the reused id of an ended process. */
#include "collectives/liveness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void a_living_process_has_one_start_time(void **state) {
  (void)state;
  uint64_t started = openreg_process_started(getpid());
  assert_true(started > 0);
  assert_true(openreg_process_started(getpid()) == started);
  assert_false(openreg_process_has_ended(getpid(), started));
  assert_false(openreg_process_has_ended(getpid(), 0));
}

static void a_process_with_a_reused_id_is_another_one(void **state) {
  (void)state;
  assert_true(openreg_process_has_ended(getpid(), openreg_process_started(getpid()) - 1));
}

/* A name may contain the separators of the fields. */
static void the_name_does_not_matter(void **state) {
  (void)state;
  char before[16];
  uint64_t started = openreg_process_started(getpid());
  assert_int_equal(prctl(PR_GET_NAME, before), 0);
  assert_int_equal(prctl(PR_SET_NAME, "a) Z 1 (b"), 0);
  assert_true(openreg_process_started(getpid()) == started);
  assert_int_equal(prctl(PR_SET_NAME, before), 0);
}

static void a_killed_process_has_ended_before_it_is_reaped(void **state) {
  (void)state;
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0)
    for (;;)
      pause();
  uint64_t started = openreg_process_started(pid);
  int watch = openreg_process_open_pidfd(pid);
  struct pollfd one = {.fd = watch, .events = POLLIN};
  assert_false(openreg_process_has_ended(pid, started));
  if (watch >= 0)
    assert_int_equal(poll(&one, 1, 0), 0);
  assert_int_equal(kill(pid, SIGKILL), 0);
  siginfo_t info;
  assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
  assert_true(openreg_process_has_ended(pid, started));
  if (watch >= 0) {
    assert_int_equal(poll(&one, 1, 0), 1);
    close(watch);
  }
  assert_int_equal(waitpid(pid, NULL, 0), pid);
  assert_true(openreg_process_has_ended(pid, started));
  assert_true(openreg_process_started(pid) == 0);
  assert_int_equal(openreg_process_open_pidfd(pid), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_living_process_has_one_start_time),
      cmocka_unit_test(a_process_with_a_reused_id_is_another_one),
      cmocka_unit_test(the_name_does_not_matter),
      cmocka_unit_test(a_killed_process_has_ended_before_it_is_reaped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
