/* Utilization: the share of busy time between two samples, and how other processes see it.
 *
 * The first part sets the clock back in a private control file that is not listed. In the second
 * part, other tests that list all groups take samples too, so a sample may compare with a time
 * before the work began.
 */
#define _GNU_SOURCE
#include "helper.h"
#include "device/ledger/control.h"
#include "device/streams/busy_time.h"
#include "gate.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- two samples -------------------------------------------------------------------------------
 */

enum { SECOND = 1000000000 / 1024 }; /* in ticks */

static struct control_file file;
static int busy_percent[OPENREG_MAX_DEVICES];

static _Atomic int64_t *meter_of(int slot, int device) {
  return &file.control->processes[slot].busy_counters[device];
}

/* A control file with two devices and two processes. */
static void make_control_file(void) {
  char group[64];
  struct control_header header = {.identity = 1, .device_count = 2};
  snprintf(group, sizeof group, ".samples-%d", (int)getpid());
  for (int i = 0; i < 2; i++)
    header.devices[i].capacity_bytes = OPENREG_GRANULE_BYTES;
  REQUIRE_OK(openreg_control_create(group, &header));
  REQUIRE_OK(openreg_control_open(group, CONTROL_WAIT_FOREVER, &file));
  openreg_control_retire(&file);
  openreg_control_set_used_slots(&file, 2);
}

static void move_looks_back(int64_t ticks) {
  for (int i = 0; i < 2; i++)
    file.control->samples[i].at_ticks -= ticks;
}

static bool is_about(int percent, int expected) {
  return percent >= expected - 2 && percent <= expected; /* the clock advances meanwhile */
}

CHILD_TEST(the_first_sample_has_no_result) {
  make_control_file();
  openreg_control_sample_utilization(&file, busy_percent);
  REQUIRE(busy_percent[0] == -1 && busy_percent[1] == -1);
  openreg_control_sample_utilization(&file, busy_percent); /* too soon after the first sample */
  REQUIRE(busy_percent[0] == -1 && file.control->sampled_until_ns > 0);
}

CHILD_TEST(the_second_sample_returns_the_share_of_busy_time) {
  make_control_file();
  openreg_control_sample_utilization(&file, busy_percent);
  move_looks_back(SECOND / 2);
  atomic_fetch_add(meter_of(0, 0), SECOND / 8);
  atomic_fetch_add(meter_of(1, 0), SECOND / 8); /* of all processes together */
  openreg_control_sample_utilization(&file, busy_percent);
  REQUIRE(is_about(busy_percent[0], 50) && busy_percent[1] == 0);
}

CHILD_TEST(a_device_is_busy_for_at_most_all_of_the_time) {
  make_control_file();
  openreg_control_sample_utilization(&file, busy_percent);
  move_looks_back(SECOND / 2);
  atomic_fetch_add(meter_of(0, 1), 2 * SECOND);
  openreg_control_sample_utilization(&file, busy_percent);
  REQUIRE(busy_percent[0] == 0 && busy_percent[1] == 100);
}

CHILD_TEST(a_sample_is_compared_with_the_last_one_that_is_a_second_old) {
  make_control_file();
  openreg_control_sample_utilization(&file, busy_percent);
  atomic_fetch_add(meter_of(0, 0), SECOND);
  move_looks_back(2 * SECOND);
  openreg_control_sample_utilization(&file, busy_percent);
  REQUIRE(is_about(busy_percent[0], 50));
  int64_t last = file.control->samples[1].at_ticks;
  openreg_control_sample_utilization(
      &file, busy_percent); /* soon after: the same interval, slightly longer */
  REQUIRE(is_about(busy_percent[0], 50) && file.control->samples[1].at_ticks == last);
  move_looks_back(2 * SECOND);
  openreg_control_sample_utilization(&file, busy_percent); /* no work since the last sample */
  REQUIRE(busy_percent[0] == 0 && file.control->samples[0].at_ticks == last - 2 * SECOND);
}

CHILD_TEST(samples_before_a_long_pause_are_discarded) {
  make_control_file();
  openreg_control_sample_utilization(&file, busy_percent);
  move_looks_back(60 * (int64_t)SECOND);
  file.control->sampled_until_ns = 1;
  openreg_control_sample_utilization(&file, busy_percent);
  REQUIRE(busy_percent[0] == -1);
}

CHILD_TEST(impossible_samples_are_discarded) {
  static const int64_t wrong[][2] = {{INT64_MAX, INT64_MAX}, {-5, 7}, {9, 8}, {1, INT64_MAX}};
  make_control_file();
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    openreg_control_sample_utilization(&file, busy_percent);
    file.control->samples[0].at_ticks = wrong[i][0];
    file.control->samples[1].at_ticks = wrong[i][1];
    openreg_control_sample_utilization(&file, busy_percent);
    REQUIRE(busy_percent[0] == -1);
  }
}

CHILD_TEST(busy_time_of_an_ended_process_is_kept) {
  make_control_file();
  openreg_control_sample_utilization(&file, busy_percent);
  move_looks_back(SECOND / 2);
  atomic_fetch_add(meter_of(1, 0), SECOND / 4);
  openreg_control_fold_counters(&file, 1);
  openreg_control_fold_counters(&file, 1);
  REQUIRE(*meter_of(1, 0) == 0);
  openreg_control_sample_utilization(&file, busy_percent);
  REQUIRE(is_about(busy_percent[0], 50));
}

/* ---- another process ------------------------------------------------------------------------- */

static openreg_ledger_snapshot *group;

static openreg_status look(bool samples) {
  openreg_ledger_free_snapshots(group, group != NULL);
  group = NULL;
  return openreg_ledger_find_own(samples, &group);
}

static void await_busy(int device, int percent) {
  do {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    REQUIRE_OK(look(true));
  } while (group->devices[device].busy_percent != percent);
}

static gate gate_of_helper = GATE_CLOSED;

static void work_on_device_1(void) {
  gate_close_stream(&gate_of_helper, 1, 0);
  report(0);
  await_cue();
  gate_open(&gate_of_helper);
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

CHILD_TEST(a_group_without_processes_has_no_snapshot) {
  REQUIRE(look(true) == OPENREG_NOT_READY && !openreg_is_initialized());
}

CHILD_TEST(other_queries_do_not_sample_utilization) {
  helper worker = helper_start(work_on_device_1);
  helper_receive(&worker);
  await_busy(1, 100);
  REQUIRE_OK(look(false));
  REQUIRE(group->devices[1].busy_percent == -1);
  helper_kill(&worker);
}

CHILD_TEST(a_device_that_works_all_the_time_is_busy) {
  helper worker = helper_start(work_on_device_1);
  helper_receive(&worker);
  await_busy(1, 100);
  REQUIRE(group->devices[0].busy_percent == 0);
  helper_step(&worker);
  await_busy(1, 0);
  helper_dismiss(&worker);
}

CHILD_TEST(inline_work_counts_from_the_first_sample_on) {
  helper worker = helper_start(work_inline_on_device_0);
  helper_receive(&worker);
  REQUIRE_OK(look(true));
  helper_step(&worker);
  await_busy(0, 100);
  helper_dismiss(&worker);
}

CHILD_TEST(utilization_by_two_processes_is_at_most_100) {
  helper workers[2] = {helper_start(work_on_device_1), helper_start(work_on_device_1)};
  helper_receive(&workers[0]);
  helper_receive(&workers[1]);
  await_busy(1, 100);
  helper_kill(&workers[0]);
  helper_kill(&workers[1]);
}

CHILD_TEST(a_process_killed_while_working_is_no_longer_busy) {
  helper idle = helper_start(work_inline_on_device_0), worker = helper_start(work_on_device_1);
  helper_receive(&idle);
  helper_receive(&worker);
  await_busy(1, 100);
  helper_kill(&worker);
  await_busy(1, 0);
  helper_kill(&idle);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_first_sample_has_no_result),
      cmocka_unit_test(the_second_sample_returns_the_share_of_busy_time),
      cmocka_unit_test(a_device_is_busy_for_at_most_all_of_the_time),
      cmocka_unit_test(a_sample_is_compared_with_the_last_one_that_is_a_second_old),
      cmocka_unit_test(samples_before_a_long_pause_are_discarded),
      cmocka_unit_test(impossible_samples_are_discarded),
      cmocka_unit_test(busy_time_of_an_ended_process_is_kept),
      cmocka_unit_test(a_group_without_processes_has_no_snapshot),
      cmocka_unit_test(other_queries_do_not_sample_utilization),
      cmocka_unit_test(a_device_that_works_all_the_time_is_busy),
      cmocka_unit_test(inline_work_counts_from_the_first_sample_on),
      cmocka_unit_test(utilization_by_two_processes_is_at_most_100),
      cmocka_unit_test(a_process_killed_while_working_is_no_longer_busy),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
