/* Whether a process lives: one that ended, is a zombie, or has the number of one that ended. */
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

static void a_process_lives_and_was_started_at_one_time(void **state) {
  (void)state;
  uint64_t started = openreg_process_started(getpid());
  assert_true(started > 0);
  assert_true(openreg_process_started(getpid()) == started);
  assert_false(openreg_process_has_ended(getpid(), started));
  assert_false(openreg_process_has_ended(getpid(), 0));
}

static void another_process_with_the_number_is_not_meant(void **state) {
  (void)state;
  assert_true(openreg_process_has_ended(getpid(), openreg_process_started(getpid()) - 1));
}

/* A name may hold what stands between the fields. */
static void the_name_does_not_matter(void **state) {
  (void)state;
  char before[16];
  uint64_t started = openreg_process_started(getpid());
  assert_int_equal(prctl(PR_GET_NAME, before), 0);
  assert_int_equal(prctl(PR_SET_NAME, "a) Z 1 (b"), 0);
  assert_true(openreg_process_started(getpid()) == started);
  assert_int_equal(prctl(PR_SET_NAME, before), 0);
}

static void who_was_killed_has_ended_before_it_is_awaited(void **state) {
  (void)state;
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0)
    for (;;)
      pause();
  uint64_t started = openreg_process_started(pid);
  int watch = openreg_process_watch(pid);
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
  assert_int_equal(openreg_process_watch(pid), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_process_lives_and_was_started_at_one_time),
      cmocka_unit_test(another_process_with_the_number_is_not_meant),
      cmocka_unit_test(the_name_does_not_matter),
      cmocka_unit_test(who_was_killed_has_ended_before_it_is_awaited),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
