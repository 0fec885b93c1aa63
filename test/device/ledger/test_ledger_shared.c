/* The ledger among processes: capacity is shared, and comes back from whoever ends, in any way. */
#define _GNU_SOURCE
#include "actor.h"
#include "device/ledger/control.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static uint64_t free_on(int device) {
  uint64_t free_bytes, total_bytes;
  REQUIRE_OK(openreg_ledger_query(device, &free_bytes, &total_bytes));
  REQUIRE(total_bytes == 64 * MIB);
  return free_bytes;
}

static bool has_control_file(void) {
  return access(child_control_file(child_group()), F_OK) == 0;
}

static void hold(void) {
  REQUIRE_OK(openreg_initialize());
  report(0);
  await_cue();
}

static void take_40(void) {
  REQUIRE_OK(openreg_ledger_take(0, 40 * MIB));
  report(0);
  await_cue();
}

/* ---- sharing --------------------------------------------------------------------------------- */

static void take_40_then_what_the_director_gives_back(void) {
  take_40();
  REQUIRE(openreg_ledger_take(0, 1) == OPENREG_OUT_OF_MEMORY);
  report(0);
  await_cue();
  REQUIRE_OK(openreg_ledger_take(0, 10 * MIB));
  report(0);
  await_cue();
}

CHILD_TEST(two_processes_share_the_capacity_of_each_device) {
  actor other = actor_start(take_40_then_what_the_director_gives_back);
  actor_hear(&other);
  REQUIRE(free_on(0) == 24 * MIB && free_on(1) == 64 * MIB);
  REQUIRE(openreg_ledger_take(0, 25 * MIB) == OPENREG_OUT_OF_MEMORY);
  REQUIRE(strcmp(openreg_last_error(),
                 "openreg: device 0 is out of memory: 26214400 bytes were asked for, 25165824 of "
                 "67108864 are free") == 0);
  REQUIRE_OK(openreg_ledger_take(0, 24 * MIB));
  actor_cue(&other);
  actor_hear(&other);
  openreg_ledger_give(0, 10 * MIB);
  actor_cue(&other);
  actor_hear(&other);
  REQUIRE(free_on(0) == 0);
  actor_cue(&other);
  actor_finish(&other);
  REQUIRE(free_on(0) == 50 * MIB);
}

static void take_all_in_another_group(void) {
  char group[64];
  snprintf(group, sizeof group, "%s-else", getenv("OPENREG_GROUP"));
  REQUIRE(setenv("OPENREG_GROUP", group, 1) == 0);
  REQUIRE_OK(openreg_ledger_take(0, 64 * MIB));
  report(0);
  await_cue();
}

CHILD_TEST(groups_do_not_see_each_other) {
  actor other = actor_start(take_all_in_another_group);
  actor_hear(&other);
  REQUIRE(free_on(0) == 64 * MIB);
  actor_cue(&other);
  actor_finish(&other);
}

/* Devices that no other process has: of the kinds that numbers make there are nearly as many as
 * processes. */
static void configure_alike(uint64_t more) {
  char memory[64], profile[64];
  int director = getppid();
  snprintf(profile, sizeof profile, "%dx%d", 1 + director % 1024, 256 + director / 1024 % 3841);
  snprintf(memory, sizeof memory, "64M,%lluM", (unsigned long long)(64 + 2 * more));
  REQUIRE(unsetenv("OPENREG_GROUP") == 0 && setenv("OPENREG_PROFILE", profile, 1) == 0);
  REQUIRE(setenv("OPENREG_DEVICE_MEMORY", memory, 1) == 0);
}

static void configured_alike(void) {
  configure_alike(0);
  take_40();
}

static void report_free(void) {
  configure_alike(0);
  report(free_on(0));
}

static void report_free_with_other_devices(void) {
  configure_alike(1);
  report(free_on(0));
}

CHILD_TEST(without_a_name_the_group_is_who_is_configured_alike) {
  actor first = actor_start(configured_alike);
  actor_hear(&first);
  actor second = actor_start(report_free), third = actor_start(report_free_with_other_devices);
  REQUIRE(actor_hear(&second) == 24 * MIB);
  REQUIRE(actor_hear(&third) == 64 * MIB);
  actor_finish(&second);
  actor_finish(&third);
  actor_cue(&first);
  actor_finish(&first);
}

/* ---- ends ------------------------------------------------------------------------------------ */

CHILD_TEST(what_a_killed_process_had_is_free_again) {
  actor other = actor_start(take_40);
  actor_hear(&other);
  REQUIRE(free_on(0) == 24 * MIB);
  actor_kill(&other);
  REQUIRE(free_on(0) == 64 * MIB);
}

CHILD_TEST(taking_finds_what_a_killed_process_had_by_itself) {
  actor other = actor_start(take_40);
  actor_hear(&other);
  REQUIRE_OK(openreg_ledger_take(0, 24 * MIB));
  actor_kill(&other);
  REQUIRE_OK(openreg_ledger_take(0, 40 * MIB));
  REQUIRE(openreg_ledger_take(0, 1) == OPENREG_OUT_OF_MEMORY);
}

CHILD_TEST(a_process_that_nobody_has_waited_for_is_dead_all_the_same) {
  actor other = actor_start(take_40);
  actor_hear(&other);
  REQUIRE(free_on(0) == 24 * MIB);
  siginfo_t end;
  REQUIRE(kill(other.pid, SIGKILL) == 0);
  REQUIRE(waitid(P_PID, (id_t)other.pid, &end, WEXITED | WNOWAIT) == 0);
  REQUIRE(kill(other.pid, 0) == 0);
  REQUIRE(free_on(0) == 64 * MIB);
}

CHILD_TEST(a_process_that_is_stopped_keeps_what_it_has) {
  actor other = actor_start(take_40);
  actor_hear(&other);
  siginfo_t stop;
  REQUIRE(kill(other.pid, SIGSTOP) == 0);
  REQUIRE(waitid(P_PID, (id_t)other.pid, &stop, WSTOPPED) == 0);
  REQUIRE(free_on(0) == 24 * MIB);
  actor_kill(&other);
  REQUIRE(free_on(0) == 64 * MIB);
}

/* As when the id of a dead process was given to another: here, to this one. */
CHILD_TEST(a_process_id_that_is_in_use_again_keeps_nobody_alive) {
  actor other = actor_start(take_40);
  actor_hear(&other);
  REQUIRE(free_on(0) == 24 * MIB);
  char group[OPENREG_GROUP_NAME_BYTES];
  struct control_file file;
  snprintf(group, sizeof group, "group-%s", getenv("OPENREG_GROUP"));
  REQUIRE_OK(openreg_control_open(group, CONTROL_WAIT, &file));
  REQUIRE(file.control->processes[0].pid == other.pid);
  file.control->processes[0].pid = getpid();
  openreg_control_close(&file);
  actor_kill(&other);
  REQUIRE(free_on(0) == 64 * MIB);
}

static void take_and_exit(void) {
  REQUIRE_OK(openreg_ledger_take(0, 40 * MIB));
}

static void take_and_vanish(void) {
  REQUIRE_OK(openreg_ledger_take(0, 40 * MIB));
  _exit(0);
}

CHILD_TEST(what_is_not_given_back_by_the_end_is_free_again) {
  actor holder = actor_start(hold), tidy = actor_start(take_and_exit);
  actor_hear(&holder);
  actor_finish(&tidy);
  actor untidy = actor_start(take_and_vanish);
  actor_finish(&untidy);
  REQUIRE(free_on(0) == 64 * MIB);
  actor_cue(&holder);
  actor_finish(&holder);
}

static void take_40_with_a_child_that_lives_on(void) {
  REQUIRE_OK(openreg_ledger_take(0, 40 * MIB));
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    openreg_ledger_give(0, 1);
    report((uint64_t)getpid());
    alarm(600); /* should its director fail */
    pause();
  }
  pause();
}

CHILD_TEST(a_forked_child_does_not_keep_what_its_parent_had) {
  actor other = actor_start(take_40_with_a_child_that_lives_on);
  pid_t orphan = (pid_t)actor_hear(&other);
  REQUIRE(free_on(0) == 24 * MIB);
  actor_kill(&other);
  REQUIRE(kill(orphan, 0) == 0);
  REQUIRE(free_on(0) == 64 * MIB);
  REQUIRE(kill(orphan, SIGKILL) == 0);
}

/* ---- the control file ------------------------------------------------------------------------ */

/* There is room for it beside 40 MiB. */
static void take_20_and_exit(void) {
  REQUIRE_OK(openreg_ledger_take(0, 20 * MIB));
}

CHILD_TEST(the_control_file_goes_with_the_last_process) {
  REQUIRE(!has_control_file());
  actor first = actor_start(take_40), second;
  actor_hear(&first);
  REQUIRE(has_control_file());
  second = actor_start(take_20_and_exit);
  actor_cue(&first);
  actor_finish(&first);
  actor_finish(&second);
  REQUIRE(!has_control_file());
}

CHILD_TEST(the_control_file_stays_while_there_is_a_process) {
  actor first = actor_start(hold), second = actor_start(hold);
  actor_hear(&first);
  actor_hear(&second);
  actor_cue(&first);
  actor_finish(&first);
  REQUIRE(has_control_file());
  actor_cue(&second);
  actor_finish(&second);
  REQUIRE(!has_control_file());
}

CHILD_TEST(nobody_else_may_use_the_control_file) {
  struct stat status;
  umask(0);
  REQUIRE_OK(openreg_initialize());
  REQUIRE(stat(child_control_file(child_group()), &status) == 0);
  REQUIRE((status.st_mode & 07777) == 0600 && status.st_uid == geteuid());
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *take_and_give_for_ever(void *unused) {
  (void)unused;
  for (;;) {
    uint64_t free_bytes, total_bytes;
    if (openreg_ledger_take(0, MIB) == OPENREG_OK)
      openreg_ledger_give(0, MIB);
    (void)openreg_ledger_query(0, &free_bytes, &total_bytes);
  }
  return NULL;
}

static void start_threads(void) {
  for (int i = 0; i < 3; i++) {
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, take_and_give_for_ever, NULL) == 0);
  }
}

static void exit_among_threads(void) {
  REQUIRE_OK(openreg_ledger_take(0, 40 * MIB));
  start_threads();
}

CHILD_TEST(a_process_may_end_while_its_threads_take_and_give) {
  for (int i = 0; i < 20; i++) {
    actor other = actor_start(exit_among_threads);
    actor_finish(&other);
    REQUIRE(!has_control_file());
  }
}

static void fork_among_threads(void) {
  REQUIRE_OK(openreg_initialize());
  start_threads();
  for (int i = 0; i < 50; i++) {
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      openreg_ledger_give(0, MIB);
      _exit(openreg_ledger_take(0, MIB) == OPENREG_BAD_FORK ? 0 : 1);
    }
    int wait_status;
    REQUIRE(waitpid(child, &wait_status, 0) == child && wait_status == 0);
  }
}

CHILD_TEST(a_process_may_fork_while_its_threads_take_and_give) {
  actor other = actor_start(fork_among_threads);
  actor_finish(&other);
  REQUIRE(free_on(0) == 64 * MIB);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(two_processes_share_the_capacity_of_each_device),
      cmocka_unit_test(groups_do_not_see_each_other),
      cmocka_unit_test(without_a_name_the_group_is_who_is_configured_alike),
      cmocka_unit_test(what_a_killed_process_had_is_free_again),
      cmocka_unit_test(taking_finds_what_a_killed_process_had_by_itself),
      cmocka_unit_test(a_process_that_nobody_has_waited_for_is_dead_all_the_same),
      cmocka_unit_test(a_process_that_is_stopped_keeps_what_it_has),
      cmocka_unit_test(a_process_id_that_is_in_use_again_keeps_nobody_alive),
      cmocka_unit_test(what_is_not_given_back_by_the_end_is_free_again),
      cmocka_unit_test(a_forked_child_does_not_keep_what_its_parent_had),
      cmocka_unit_test(the_control_file_goes_with_the_last_process),
      cmocka_unit_test(the_control_file_stays_while_there_is_a_process),
      cmocka_unit_test(nobody_else_may_use_the_control_file),
      cmocka_unit_test(a_process_may_end_while_its_threads_take_and_give),
      cmocka_unit_test(a_process_may_fork_while_its_threads_take_and_give),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
