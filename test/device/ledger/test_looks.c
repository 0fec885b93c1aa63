/* How busy devices are, as it is seen from another process. */
#include "actor.h"
#include "gate.h"

#include <time.h>

static openreg_ledger_snapshot *group;

static openreg_status look(bool looks) {
  openreg_ledger_free_snapshots(group, group != NULL);
  group = NULL;
  return openreg_ledger_find_own(looks, &group);
}

/* Looks until it is known, and in these percents. */
static void await_busy(int device, int percent) {
  do {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    REQUIRE_OK(look(true));
  } while (group->devices[device].busy_percent != percent);
}

/* Whatever is known first. */
static int first_known(int device) {
  do
    REQUIRE_OK(look(true));
  while (group->devices[device].busy_percent < 0);
  return group->devices[device].busy_percent;
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

/* ---- tests ----------------------------------------------------------------------------------- */

CHILD_TEST(nobody_in_the_group_is_nothing_to_look_at) {
  REQUIRE(look(true) == OPENREG_NOT_READY && !openreg_is_initialized());
}

CHILD_TEST(the_first_look_knows_nothing_yet) {
  actor worker = actor_start(work_on_device_1);
  actor_hear(&worker);
  REQUIRE_OK(look(true));
  REQUIRE(group->devices[0].busy_percent == -1 && group->devices[1].busy_percent == -1);
  actor_kill(&worker);
}

CHILD_TEST(who_asks_for_something_else_does_not_look) {
  actor worker = actor_start(work_on_device_1);
  actor_hear(&worker);
  first_known(1);
  REQUIRE_OK(look(false));
  REQUIRE(group->devices[1].busy_percent == -1);
  actor_kill(&worker);
}

CHILD_TEST(a_device_that_works_all_the_time_is_busy) {
  actor worker = actor_start(work_on_device_1);
  actor_hear(&worker);
  REQUIRE(first_known(1) == 100);
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
  REQUIRE(first_known(1) == 100);
  actor_kill(&workers[0]);
  actor_kill(&workers[1]);
}

CHILD_TEST(who_is_killed_at_work_works_no_more) {
  actor idle = actor_start(work_inline_on_device_0), worker = actor_start(work_on_device_1);
  actor_hear(&idle);
  actor_hear(&worker);
  REQUIRE(first_known(1) == 100);
  actor_kill(&worker);
  await_busy(1, 0);
  actor_kill(&idle);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nobody_in_the_group_is_nothing_to_look_at),
      cmocka_unit_test(the_first_look_knows_nothing_yet),
      cmocka_unit_test(who_asks_for_something_else_does_not_look),
      cmocka_unit_test(a_device_that_works_all_the_time_is_busy),
      cmocka_unit_test(inline_work_is_seen_from_the_first_look_on),
      cmocka_unit_test(two_processes_on_a_device_are_at_most_all_of_it),
      cmocka_unit_test(who_is_killed_at_work_works_no_more),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
