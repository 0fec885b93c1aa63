/* How busy devices are: the share of time between two looks, and what another process sees of it.
 *
 * The first part turns the clock back in a control file of its own, which nobody lists. In the
 * second other tests, which list all groups, look as well: a look may go back to before the work
 * began.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "device/ledger/control.h"
#include "device/streams/busy_time.h"
#include "gate.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- two looks ------------------------------------------------------------------------------- */

enum { SECOND = 1000000000 / 1024 }; /* in ticks */

static struct control_file file;
static int busy_percent[OPENREG_MAX_DEVICES];

static _Atomic int64_t *meter_of(int slot, int device) {
  return &file.control->processes[slot].meters[device];
}

/* One of two devices, in which two processes are. */
static void make_control_file(void) {
  char group[64];
  struct control_header header = {.identity = 1, .device_count = 2};
  snprintf(group, sizeof group, ".looks-%d", (int)getpid());
  for (int i = 0; i < 2; i++)
    header.devices[i].capacity_bytes = OPENREG_GRANULE_BYTES;
  REQUIRE_OK(openreg_control_create(group, &header));
  REQUIRE_OK(openreg_control_open(group, CONTROL_WAIT, &file));
  openreg_control_retire(&file);
  openreg_control_set_used_slots(&file, 2);
}

static void move_looks_back(int64_t ticks) {
  for (int i = 0; i < 2; i++)
    file.control->looks[i].at_ticks -= ticks;
}

static bool is_about(int percent, int expected) {
  return percent >= expected - 2 && percent <= expected; /* the clock goes on meanwhile */
}

CHILD_TEST(the_first_look_knows_nothing_yet) {
  make_control_file();
  openreg_control_look(&file, busy_percent);
  REQUIRE(busy_percent[0] == -1 && busy_percent[1] == -1);
  openreg_control_look(&file, busy_percent); /* right after it, neither */
  REQUIRE(busy_percent[0] == -1 && file.control->watched_until_ns > 0);
}

CHILD_TEST(the_second_look_tells_the_share_of_time_since) {
  make_control_file();
  openreg_control_look(&file, busy_percent);
  move_looks_back(SECOND / 2);
  atomic_fetch_add(meter_of(0, 0), SECOND / 8);
  atomic_fetch_add(meter_of(1, 0), SECOND / 8); /* all processes together */
  openreg_control_look(&file, busy_percent);
  REQUIRE(is_about(busy_percent[0], 50) && busy_percent[1] == 0);
}

CHILD_TEST(a_device_is_busy_for_at_most_all_of_the_time) {
  make_control_file();
  openreg_control_look(&file, busy_percent);
  move_looks_back(SECOND / 2);
  atomic_fetch_add(meter_of(0, 1), 2 * SECOND);
  openreg_control_look(&file, busy_percent);
  REQUIRE(busy_percent[0] == 0 && busy_percent[1] == 100);
}

CHILD_TEST(a_look_goes_back_to_the_last_one_that_is_a_second_old) {
  make_control_file();
  openreg_control_look(&file, busy_percent);
  atomic_fetch_add(meter_of(0, 0), SECOND);
  move_looks_back(2 * SECOND);
  openreg_control_look(&file, busy_percent);
  REQUIRE(is_about(busy_percent[0], 50));
  int64_t last = file.control->looks[1].at_ticks;
  openreg_control_look(&file, busy_percent); /* soon after: the same time, and a little */
  REQUIRE(is_about(busy_percent[0], 50) && file.control->looks[1].at_ticks == last);
  move_looks_back(2 * SECOND);
  openreg_control_look(&file, busy_percent); /* nothing was done since the last look */
  REQUIRE(busy_percent[0] == 0 && file.control->looks[0].at_ticks == last - 2 * SECOND);
}

CHILD_TEST(looks_before_which_nobody_looked_for_long_are_forgotten) {
  make_control_file();
  openreg_control_look(&file, busy_percent);
  move_looks_back(60 * (int64_t)SECOND);
  file.control->watched_until_ns = 1;
  openreg_control_look(&file, busy_percent);
  REQUIRE(busy_percent[0] == -1);
}

CHILD_TEST(looks_that_cannot_be_are_forgotten) {
  static const int64_t wrong[][2] = {{INT64_MAX, INT64_MAX}, {-5, 7}, {9, 8}, {1, INT64_MAX}};
  make_control_file();
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    openreg_control_look(&file, busy_percent);
    file.control->looks[0].at_ticks = wrong[i][0];
    file.control->looks[1].at_ticks = wrong[i][1];
    openreg_control_look(&file, busy_percent);
    REQUIRE(busy_percent[0] == -1);
  }
}

CHILD_TEST(what_an_ended_process_worked_is_kept) {
  make_control_file();
  openreg_control_look(&file, busy_percent);
  move_looks_back(SECOND / 2);
  atomic_fetch_add(meter_of(1, 0), SECOND / 4);
  openreg_control_settle(&file, 1);
  openreg_control_settle(&file, 1);
  REQUIRE(*meter_of(1, 0) == 0);
  openreg_control_look(&file, busy_percent);
  REQUIRE(is_about(busy_percent[0], 50));
}

/* ---- another process ------------------------------------------------------------------------- */

static openreg_ledger_snapshot *group;

static openreg_status look(bool looks) {
  openreg_ledger_free_snapshots(group, group != NULL);
  group = NULL;
  return openreg_ledger_find_own(looks, &group);
}

static void await_busy(int device, int percent) {
  do {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    REQUIRE_OK(look(true));
  } while (group->devices[device].busy_percent != percent);
}

static gate gate_of_actor = GATE_CLOSED;

static void work_on_device_1(void) {
  gate_close_stream(&gate_of_actor, 1, 0);
  report(0);
  await_cue();
  gate_open(&gate_of_actor);
  REQUIRE_OK(openreg_device_synchronize(1));
  report(0);
  await_cue();
}

static void work_inline_on_device_0(void) {
  REQUIRE_OK(openreg_initialize());
  report(0);
  await_cue();
  REQUIRE_OK(openreg_stream_try_begin_inline(0, 0));
  report(0);
  await_cue();
  openreg_stream_end_inline(0, 0);
}

CHILD_TEST(nobody_in_the_group_is_nothing_to_look_at) {
  REQUIRE(look(true) == OPENREG_NOT_READY && !openreg_is_initialized());
}

CHILD_TEST(who_asks_for_something_else_does_not_look) {
  actor worker = actor_start(work_on_device_1);
  actor_hear(&worker);
  await_busy(1, 100);
  REQUIRE_OK(look(false));
  REQUIRE(group->devices[1].busy_percent == -1);
  actor_kill(&worker);
}

CHILD_TEST(a_device_that_works_all_the_time_is_busy) {
  actor worker = actor_start(work_on_device_1);
  actor_hear(&worker);
  await_busy(1, 100);
  REQUIRE(group->devices[0].busy_percent == 0);
  actor_step(&worker);
  await_busy(1, 0);
  actor_dismiss(&worker);
}

CHILD_TEST(inline_work_is_seen_from_the_first_look_on) {
  actor worker = actor_start(work_inline_on_device_0);
  actor_hear(&worker);
  REQUIRE_OK(look(true));
  actor_step(&worker);
  await_busy(0, 100);
  actor_dismiss(&worker);
}

CHILD_TEST(two_processes_on_a_device_are_at_most_all_of_it) {
  actor workers[2] = {actor_start(work_on_device_1), actor_start(work_on_device_1)};
  actor_hear(&workers[0]);
  actor_hear(&workers[1]);
  await_busy(1, 100);
  actor_kill(&workers[0]);
  actor_kill(&workers[1]);
}

CHILD_TEST(who_is_killed_at_work_works_no_more) {
  actor idle = actor_start(work_inline_on_device_0), worker = actor_start(work_on_device_1);
  actor_hear(&idle);
  actor_hear(&worker);
  await_busy(1, 100);
  actor_kill(&worker);
  await_busy(1, 0);
  actor_kill(&idle);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_first_look_knows_nothing_yet),
      cmocka_unit_test(the_second_look_tells_the_share_of_time_since),
      cmocka_unit_test(a_device_is_busy_for_at_most_all_of_the_time),
      cmocka_unit_test(a_look_goes_back_to_the_last_one_that_is_a_second_old),
      cmocka_unit_test(looks_before_which_nobody_looked_for_long_are_forgotten),
      cmocka_unit_test(looks_that_cannot_be_are_forgotten),
      cmocka_unit_test(what_an_ended_process_worked_is_kept),
      cmocka_unit_test(nobody_in_the_group_is_nothing_to_look_at),
      cmocka_unit_test(who_asks_for_something_else_does_not_look),
      cmocka_unit_test(a_device_that_works_all_the_time_is_busy),
      cmocka_unit_test(inline_work_is_seen_from_the_first_look_on),
      cmocka_unit_test(two_processes_on_a_device_are_at_most_all_of_it),
      cmocka_unit_test(who_is_killed_at_work_works_no_more),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
