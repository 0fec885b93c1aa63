/* The ledger among processes: capacity is shared, and is released by processes that end in any way.
 */
#define _GNU_SOURCE
#include "devices.h"
#include "helper.h"
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

static bool has_control_file(void) {
  return access(child_control_file(child_group()), F_OK) == 0;
}

static void hold(void) {
  REQUIRE_OK(openreg_initialize());
  report(0);
  await_cue();
}

static void take_40(void) {
  REQUIRE_OK(openreg_ledger_reserve(0, 40 * MIB));
  report(0);
  await_cue();
}

/* ---- sharing --------------------------------------------------------------------------------- */

static void take_40_then_what_the_director_gives_back(void) {
  take_40();
  REQUIRE(openreg_ledger_reserve(0, 1) == OPENREG_OUT_OF_MEMORY);
  report(0);
  await_cue();
  REQUIRE_OK(openreg_ledger_reserve(0, 10 * MIB));
  report(0);
  await_cue();
}

CHILD_TEST(two_processes_share_the_capacity_of_each_device) {
  helper other = helper_start(take_40_then_what_the_director_gives_back);
  helper_receive(&other);
  REQUIRE(free_on(0) == 24 * MIB && free_on(1) == 64 * MIB);
  REQUIRE(openreg_ledger_reserve(0, 25 * MIB) == OPENREG_OUT_OF_MEMORY);
  REQUIRE(
      strcmp(
          openreg_last_error(),
          "openreg: device 0 is out of memory: 26214400 bytes were requested, but only 25165824 of "
          "67108864 are free") == 0);
  REQUIRE_OK(openreg_ledger_reserve(0, 24 * MIB));
  helper_cue(&other);
  helper_receive(&other);
  openreg_ledger_release(0, 10 * MIB);
  helper_cue(&other);
  helper_receive(&other);
  REQUIRE(free_on(0) == 0);
  helper_cue(&other);
  helper_finish(&other);
  REQUIRE(free_on(0) == 50 * MIB);
}

static void take_all_in_another_group(void) {
  char group[64];
  snprintf(group, sizeof group, "%s-else", getenv("OPENREG_GROUP"));
  REQUIRE(setenv("OPENREG_GROUP", group, 1) == 0);
  REQUIRE_OK(openreg_ledger_reserve(0, 64 * MIB));
  report(0);
  await_cue();
}

CHILD_TEST(groups_do_not_see_each_other) {
  helper other = helper_start(take_all_in_another_group);
  helper_receive(&other);
  REQUIRE(free_on(0) == 64 * MIB);
  helper_cue(&other);
  helper_finish(&other);
}

/* Configures devices that no other process has. Numeric profiles allow nearly as many kinds as
 * there are processes. */
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

CHILD_TEST(an_unnamed_group_has_all_processes_with_the_same_configuration) {
  helper first = helper_start(configured_alike);
  helper_receive(&first);
  helper second = helper_start(report_free), third = helper_start(report_free_with_other_devices);
  REQUIRE(helper_receive(&second) == 24 * MIB);
  REQUIRE(helper_receive(&third) == 64 * MIB);
  helper_finish(&second);
  helper_finish(&third);
  helper_cue(&first);
  helper_finish(&first);
}

/* ---- ends of processes ----------------------------------------------------------------------- */

CHILD_TEST(memory_reserved_by_a_killed_process_is_free_again) {
  helper other = helper_start(take_40);
  helper_receive(&other);
  REQUIRE(free_on(0) == 24 * MIB);
  helper_kill(&other);
  REQUIRE(free_on(0) == 64 * MIB);
}

CHILD_TEST(reserving_reclaims_memory_of_killed_processes) {
  helper other = helper_start(take_40);
  helper_receive(&other);
  REQUIRE_OK(openreg_ledger_reserve(0, 24 * MIB));
  helper_kill(&other);
  REQUIRE_OK(openreg_ledger_reserve(0, 40 * MIB));
  REQUIRE(openreg_ledger_reserve(0, 1) == OPENREG_OUT_OF_MEMORY);
}

CHILD_TEST(a_zombie_process_counts_as_dead) {
  helper other = helper_start(take_40);
  helper_receive(&other);
  REQUIRE(free_on(0) == 24 * MIB);
  siginfo_t end;
  REQUIRE(kill(other.pid, SIGKILL) == 0);
  REQUIRE(waitid(P_PID, (id_t)other.pid, &end, WEXITED | WNOWAIT) == 0);
  REQUIRE(kill(other.pid, 0) == 0);
  REQUIRE(free_on(0) == 64 * MIB);
}

CHILD_TEST(a_process_that_is_stopped_keeps_what_it_has) {
  helper other = helper_start(take_40);
  helper_receive(&other);
  siginfo_t stop;
  REQUIRE(kill(other.pid, SIGSTOP) == 0);
  REQUIRE(waitid(P_PID, (id_t)other.pid, &stop, WSTOPPED) == 0);
  REQUIRE(free_on(0) == 24 * MIB);
  helper_kill(&other);
  REQUIRE(free_on(0) == 64 * MIB);
}

/* Simulates that the id of a dead process was reused, here for this process. */
CHILD_TEST(a_reused_process_id_keeps_no_rank_alive) {
  helper other = helper_start(take_40);
  helper_receive(&other);
  REQUIRE(free_on(0) == 24 * MIB);
  char group[OPENREG_GROUP_NAME_BYTES];
  struct control_file file;
  snprintf(group, sizeof group, "group-%s", getenv("OPENREG_GROUP"));
  REQUIRE_OK(openreg_control_open(group, CONTROL_WAIT_FOREVER, &file));
  REQUIRE(file.control->processes[0].pid == other.pid);
  file.control->processes[0].pid = getpid();
  openreg_control_close(&file);
  helper_kill(&other);
  REQUIRE(free_on(0) == 64 * MIB);
}

static void take_and_exit(void) {
  REQUIRE_OK(openreg_ledger_reserve(0, 40 * MIB));
}

static void take_and_vanish(void) {
  REQUIRE_OK(openreg_ledger_reserve(0, 40 * MIB));
  _exit(0);
}

CHILD_TEST(memory_not_released_before_exit_is_free_again) {
  helper holder = helper_start(hold), tidy = helper_start(take_and_exit);
  helper_receive(&holder);
  helper_finish(&tidy);
  helper untidy = helper_start(take_and_vanish);
  helper_finish(&untidy);
  REQUIRE(free_on(0) == 64 * MIB);
  helper_cue(&holder);
  helper_finish(&holder);
}

static void take_40_with_a_child_that_lives_on(void) {
  REQUIRE_OK(openreg_ledger_reserve(0, 40 * MIB));
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    openreg_ledger_release(0, 1);
    report((uint64_t)getpid());
    alarm(600); /* in case the test process fails */
    pause();
  }
  pause();
}

CHILD_TEST(a_forked_child_does_not_keep_its_parents_memory) {
  helper other = helper_start(take_40_with_a_child_that_lives_on);
  pid_t orphan = (pid_t)helper_receive(&other);
  REQUIRE(free_on(0) == 24 * MIB);
  helper_kill(&other);
  REQUIRE(kill(orphan, 0) == 0);
  REQUIRE(free_on(0) == 64 * MIB);
  REQUIRE(kill(orphan, SIGKILL) == 0);
}

/* ---- the control file ------------------------------------------------------------------------ */

/* It fits beside the 40 MiB. */
static void take_20_and_exit(void) {
  REQUIRE_OK(openreg_ledger_reserve(0, 20 * MIB));
}

CHILD_TEST(the_control_file_goes_with_the_last_process) {
  REQUIRE(!has_control_file());
  helper first = helper_start(take_40), second;
  helper_receive(&first);
  REQUIRE(has_control_file());
  second = helper_start(take_20_and_exit);
  helper_cue(&first);
  helper_finish(&first);
  helper_finish(&second);
  REQUIRE(!has_control_file());
}

CHILD_TEST(the_control_file_stays_while_there_is_a_process) {
  helper first = helper_start(hold), second = helper_start(hold);
  helper_receive(&first);
  helper_receive(&second);
  helper_cue(&first);
  helper_finish(&first);
  REQUIRE(has_control_file());
  helper_cue(&second);
  helper_finish(&second);
  REQUIRE(!has_control_file());
}

CHILD_TEST(only_its_user_can_access_the_control_file) {
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
    if (openreg_ledger_reserve(0, MIB) == OPENREG_OK)
      openreg_ledger_release(0, MIB);
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
  REQUIRE_OK(openreg_ledger_reserve(0, 40 * MIB));
  start_threads();
}

CHILD_TEST(a_process_may_end_while_its_threads_take_and_give) {
  for (int i = 0; i < 20; i++) {
    helper other = helper_start(exit_among_threads);
    helper_finish(&other);
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
      openreg_ledger_release(0, MIB);
      _exit(openreg_ledger_reserve(0, MIB) == OPENREG_BAD_FORK ? 0 : 1);
    }
    int wait_status;
    REQUIRE(waitpid(child, &wait_status, 0) == child && wait_status == 0);
  }
}

CHILD_TEST(a_process_may_fork_while_its_threads_take_and_give) {
  helper other = helper_start(fork_among_threads);
  helper_finish(&other);
  REQUIRE(free_on(0) == 64 * MIB);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(two_processes_share_the_capacity_of_each_device),
      cmocka_unit_test(groups_do_not_see_each_other),
      cmocka_unit_test(an_unnamed_group_has_all_processes_with_the_same_configuration),
      cmocka_unit_test(memory_reserved_by_a_killed_process_is_free_again),
      cmocka_unit_test(reserving_reclaims_memory_of_killed_processes),
      cmocka_unit_test(a_zombie_process_counts_as_dead),
      cmocka_unit_test(a_process_that_is_stopped_keeps_what_it_has),
      cmocka_unit_test(a_reused_process_id_keeps_no_rank_alive),
      cmocka_unit_test(memory_not_released_before_exit_is_free_again),
      cmocka_unit_test(a_forked_child_does_not_keep_its_parents_memory),
      cmocka_unit_test(the_control_file_goes_with_the_last_process),
      cmocka_unit_test(the_control_file_stays_while_there_is_a_process),
      cmocka_unit_test(only_its_user_can_access_the_control_file),
      cmocka_unit_test(a_process_may_end_while_its_threads_take_and_give),
      cmocka_unit_test(a_process_may_fork_while_its_threads_take_and_give),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
