/* Snapshots of all groups. */
#define _GNU_SOURCE
#include "helper.h"
#include "device/ledger/control.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static openreg_ledger_snapshot *snapshots;
static int snapshot_count;
static const char *problem;

static void look(void) {
  openreg_ledger_free_snapshots(snapshots, snapshot_count);
  REQUIRE_OK(openreg_ledger_list(&snapshots, &snapshot_count, &problem));
}

/* Other tests have groups at the same time. */
static const openreg_ledger_snapshot *snapshot_of(const char *group) {
  for (int i = 0; i < snapshot_count; i++)
    if (strcmp(snapshots[i].group, group) == 0)
      return &snapshots[i];
  return NULL;
}

static void take_8_and_5(void) {
  REQUIRE_OK(openreg_ledger_reserve(0, 8 * MIB));
  REQUIRE_OK(openreg_ledger_reserve(1, 5 * MIB));
  report(0);
  await_cue();
}

/* ---- tests ----------------------------------------------------------------------------------- */

CHILD_TEST(a_snapshot_initializes_nothing_and_joins_no_group) {
  look();
  REQUIRE(snapshot_of(child_group()) == NULL && !openreg_is_initialized());
  REQUIRE(access(child_control_file(child_group()), F_OK) != 0);
}

static int64_t now_ns(void) {
  struct timespec now;
  REQUIRE(clock_gettime(CLOCK_REALTIME, &now) == 0);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void shows_body(void) {
  int64_t before = now_ns();
  helper first = helper_start(take_8_and_5);
  helper_receive(&first);
  helper second = helper_start(take_8_and_5);
  helper_receive(&second);
  look();
  const openreg_ledger_snapshot *snapshot = snapshot_of(child_group());
  REQUIRE(snapshot != NULL && snapshot->device_count == 2 && snapshot->process_count == 2);
  REQUIRE(strcmp(snapshot->devices[0].profile, "t4") == 0);
  REQUIRE(strcmp(snapshot->devices[0].name, "Tesla T4") == 0);
  REQUIRE(strcmp(snapshot->devices[1].profile, "48x1536") == 0);
  REQUIRE(snapshot->devices[0].total_bytes == 64 * MIB);
  REQUIRE(snapshot->devices[1].total_bytes == 32 * MIB);
  REQUIRE(snapshot->devices[0].used_bytes == 16 * MIB);
  REQUIRE(snapshot->devices[1].used_bytes == 10 * MIB);
  REQUIRE(strcmp(snapshot->devices[0].cpuset, "0-1") == 0);
  REQUIRE(strcmp(snapshot->devices[1].cpuset, "2-3") == 0);
  for (int i = 0; i < 2; i++) {
    const openreg_ledger_process *process = &snapshot->processes[i];
    REQUIRE(process->pid == (i == 0 ? first.pid : second.pid));
    REQUIRE(!process->has_exited);
    REQUIRE(process->started_ns >= before && process->started_ns <= now_ns());
    REQUIRE(strstr(process->name, "test_device_snapshot") != NULL);
    REQUIRE(process->bytes[0] == 8 * MIB && process->bytes[1] == 5 * MIB);
  }
  helper_kill(&first);
  look();
  snapshot = snapshot_of(child_group());
  REQUIRE(snapshot->process_count == 1 && snapshot->processes[0].pid == second.pid);
  REQUIRE(snapshot->devices[0].used_bytes == 8 * MIB);
  helper_kill(&second);
}

static void a_snapshot_shows_devices_and_processes(void **state) {
  (void)state;
  child_expect_pass(shows_body,
                    ENVIRONMENT("OPENREG_DEVICE_MEMORY=64M,32M", "OPENREG_PROFILE=t4,48x1536",
                                "HWLOC_SYNTHETIC=numa:2 core:2 pu:1"));
}

CHILD_TEST(a_process_sees_itself) {
  REQUIRE_OK(openreg_ledger_reserve(1, 7 * MIB));
  look();
  const openreg_ledger_snapshot *snapshot = snapshot_of(child_group());
  REQUIRE(snapshot != NULL && snapshot->process_count == 1);
  REQUIRE(snapshot->processes[0].pid == getpid() && snapshot->processes[0].bytes[1] == 7 * MIB);
}

static void take_in_named_group(void) {
  char group[64];
  snprintf(group, sizeof group, "%s-%d", getenv("OPENREG_GROUP"), (int)getpid());
  REQUIRE(setenv("OPENREG_GROUP", group, 1) == 0);
  take_8_and_5();
}

CHILD_TEST(all_groups_are_shown_in_the_order_of_their_names) {
  helper helpers[3];
  for (int i = 0; i < 3; i++) {
    helpers[i] = helper_start(take_in_named_group);
    helper_receive(&helpers[i]);
  }
  look();
  int found = 0;
  for (int i = 0; i < snapshot_count; i++) {
    REQUIRE(i == 0 || strcmp(snapshots[i - 1].group, snapshots[i].group) < 0);
    found += strncmp(snapshots[i].group, child_group(), strlen(child_group())) == 0;
  }
  REQUIRE(found == 3);
  for (int i = 0; i < 3; i++) {
    helper_cue(&helpers[i]);
    helper_finish(&helpers[i]);
  }
}

CHILD_TEST(the_control_file_of_dead_processes_is_removed) {
  helper other = helper_start(take_8_and_5);
  helper_receive(&other);
  REQUIRE(access(child_control_file(child_group()), F_OK) == 0);
  helper_kill(&other);
  look();
  REQUIRE(snapshot_of(child_group()) == NULL);
  REQUIRE(access(child_control_file(child_group()), F_OK) != 0);
}

CHILD_TEST(a_corrupt_control_file_is_skipped_and_named) {
  char corrupt[OPENREG_GROUP_NAME_BYTES + 16];
  snprintf(corrupt, sizeof corrupt, "-%s",
           child_group()); /* sorts first, so that its message is not cut off */
  REQUIRE_OK(openreg_control_make_folder());
  int file = open(child_control_file(corrupt), O_WRONLY | O_CREAT | O_EXCL, 0600);
  REQUIRE(file >= 0 && write(file, "?", 1) == 1 && close(file) == 0);
  REQUIRE_OK(openreg_initialize());
  look();
  REQUIRE(unlink(child_control_file(corrupt)) == 0);
  REQUIRE(problem != NULL && strstr(problem, child_control_file(corrupt)) != NULL);
  REQUIRE(strstr(problem, "it has 1 bytes") != NULL);
  REQUIRE(snapshot_of(corrupt) == NULL && snapshot_of(child_group()) != NULL);
}

/* Problems of other tests' groups may leave no space for later ones. */
static void be_among_the_first(void) {
  char group[64];
  snprintf(group, sizeof group, "-%s", getenv("OPENREG_GROUP"));
  REQUIRE(setenv("OPENREG_GROUP", group, 1) == 0);
}

CHILD_TEST(a_control_file_that_stays_locked_is_skipped_and_named) {
  struct control_file file;
  be_among_the_first();
  REQUIRE_OK(openreg_initialize());
  REQUIRE_OK(openreg_control_open(child_group(), CONTROL_WAIT_FOREVER, &file));
  look();
  REQUIRE(problem != NULL && strstr(problem, child_control_file(child_group())) != NULL);
  REQUIRE(strstr(problem, "check whether a process of the group is stopped") != NULL);
  REQUIRE(snapshot_of(child_group()) == NULL);
  openreg_control_close(&file);
  look();
  REQUIRE(snapshot_of(child_group()) != NULL);
}

static void look_in_a_child(void) {
  look();
  REQUIRE(snapshot_of(child_group()) != NULL && snapshot_of(child_group())->process_count == 1);
}

CHILD_TEST(a_forked_child_sees_its_parent) {
  REQUIRE_OK(openreg_initialize());
  child_fork_and_require(look_in_a_child);
  look_in_a_child();
}

CHILD_TEST(an_empty_list_of_snapshots_can_be_freed) {
  openreg_ledger_free_snapshots(NULL, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_snapshot_initializes_nothing_and_joins_no_group),
      cmocka_unit_test(a_snapshot_shows_devices_and_processes),
      cmocka_unit_test(a_process_sees_itself),
      cmocka_unit_test(all_groups_are_shown_in_the_order_of_their_names),
      cmocka_unit_test(the_control_file_of_dead_processes_is_removed),
      cmocka_unit_test(a_corrupt_control_file_is_skipped_and_named),
      cmocka_unit_test(a_control_file_that_stays_locked_is_skipped_and_named),
      cmocka_unit_test(a_forked_child_sees_its_parent),
      cmocka_unit_test(an_empty_list_of_snapshots_can_be_freed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
