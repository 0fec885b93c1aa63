/* Events shared between processes. */
#define _GNU_SOURCE
#include "board.h"
#include "device/ipc/exports.h"
#include "device/streams/stream.h"
#include "gate.h"

#include <sched.h>
#include <string.h>

static openreg_event *make_event(int device) {
  openreg_event *event;
  REQUIRE_OK(openreg_event_create(device, false, &event));
  return event;
}

static openreg_event *import_event(int number) {
  openreg_event *event;
  REQUIRE_OK(openreg_event_import(&board->handles[number], &event));
  return event;
}

static openreg_status set_number(void *number) {
  board->numbers[0] = (uint64_t)(uintptr_t)number;
  return OPENREG_OK;
}

static void *number(uintptr_t value) {
  return (void *)value;
}

/* ---- exporting ------------------------------------------------------------------------------- */

CHILD_TEST(events_with_timing_are_not_exported) {
  openreg_ipc_handle handle;
  openreg_event *event;
  REQUIRE_OK(openreg_event_create(0, true, &event));
  REQUIRE(openreg_event_export(event, &handle) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strstr(openreg_last_error(), "an event with timing cannot be exported") != NULL);
  REQUIRE(openreg_event_export(NULL, &handle) == OPENREG_INVALID_ARGUMENT);
  openreg_event_destroy(event);
}

CHILD_TEST(an_exported_event_still_works_in_its_own_process) {
  gate gate = GATE_CLOSED;
  _Atomic int counter = 0;
  openreg_ipc_handle handle;
  openreg_event *event = make_event(0);
  REQUIRE_OK(openreg_event_export(event, &handle));
  REQUIRE_OK(openreg_event_query(event));
  REQUIRE_OK(openreg_event_record(event, 3)); /* an idle stream */
  REQUIRE_OK(openreg_event_query(event));
  gate_close_stream(&gate, 0, 3);
  REQUIRE_OK(openreg_event_record(event, 3));
  REQUIRE(openreg_event_query(event) == OPENREG_NOT_READY);
  REQUIRE_OK(openreg_stream_wait_event(1, 4, event));
  REQUIRE_OK(openreg_stream_launch(1, 4, count_up, &counter));
  REQUIRE(openreg_event_synchronize_for(event, 1000) == OPENREG_NOT_READY);
  REQUIRE(counter == 0);
  gate_open(&gate);
  REQUIRE_OK(openreg_event_synchronize(event));
  REQUIRE_OK(openreg_stream_synchronize(1, 4));
  REQUIRE(counter == 1);
  openreg_event_destroy(event);
}

CHILD_TEST(an_exported_event_is_not_recorded_from_within_a_streams_own_work) {
  openreg_ipc_handle handle;
  openreg_event *event = make_event(0);
  REQUIRE_OK(openreg_event_export(event, &handle));
  REQUIRE_OK(openreg_stream_try_begin_inline(0, 2));
  REQUIRE(openreg_event_record(event, 2) == OPENREG_NOT_PERMITTED);
  openreg_stream_end_inline(0, 2);
  REQUIRE_OK(openreg_event_query(event));
  REQUIRE_OK(openreg_event_record(event, 2));
  openreg_event_destroy(event);
}

static void export_and_destroy(int device, int count) {
  openreg_ipc_handle handle;
  for (int i = 0; i < count; i++) {
    openreg_event *event = make_event(device);
    REQUIRE_OK(openreg_event_export(event, &handle));
    openreg_event_destroy(event);
  }
}

CHILD_TEST(destroyed_events_leave_no_entries) {
  export_and_destroy(0, 2 * (int)OPENREG_EXPORT_COUNT);
}

CHILD_TEST(an_event_may_be_destroyed_before_it_is_reached) {
  gate gate = GATE_CLOSED;
  openreg_ipc_handle handle;
  gate_close_stream(&gate, 0, 0);
  for (int i = 0; i < 10; i++) {
    openreg_event *event = make_event(0);
    REQUIRE_OK(openreg_event_record(event, 0));
    REQUIRE_OK(openreg_event_export(event, &handle));
    REQUIRE_OK(openreg_event_record(event, 0));
    openreg_event_destroy(event);
  }
  gate_open(&gate);
  REQUIRE_OK(openreg_stream_synchronize(0, 0));
  export_and_destroy(0, (int)OPENREG_EXPORT_COUNT);
}

/* ---- importing ------------------------------------------------------------------------------- */

/* Records an event behind a gate, before or after exporting it. */
static void stand_at_gate(bool record_first) {
  gate gate = GATE_CLOSED;
  openreg_event *event = make_event(1);
  gate_close_stream(&gate, 1, 2);
  REQUIRE_OK(openreg_stream_launch(1, 2, set_number, number(42)));
  if (record_first)
    REQUIRE_OK(openreg_event_record(event, 2));
  REQUIRE_OK(openreg_event_export(event, &board->handles[0]));
  if (!record_first)
    REQUIRE_OK(openreg_event_record(event, 2));
  report(0);
  await_cue();
  gate_open(&gate);
  await_cue();
  openreg_event_destroy(event);
}

static void record_and_export(void) {
  stand_at_gate(true);
}

static void export_and_record(void) {
  stand_at_gate(false);
}

static void wait_in_every_way(void (*exporter_body)(void)) {
  board_make();
  helper exporter = helper_start(exporter_body);
  _Atomic int counter = 0;
  helper_receive(&exporter);
  openreg_event *event = import_event(0);
  REQUIRE(openreg_event_query(event) == OPENREG_NOT_READY);
  REQUIRE(openreg_event_synchronize_for(event, 1000) == OPENREG_NOT_READY);
  REQUIRE(openreg_event_synchronize_for(event, 50000000) == OPENREG_NOT_READY);
  REQUIRE_OK(openreg_stream_wait_event(0, 4, event));
  REQUIRE_OK(openreg_stream_launch(0, 4, count_up, &counter));
  REQUIRE(openreg_stream_query(0, 4) == OPENREG_NOT_READY);
  REQUIRE(counter == 0);
  helper_cue(&exporter);
  REQUIRE_OK(openreg_event_synchronize(event));
  REQUIRE(board->numbers[0] == 42);
  REQUIRE_OK(openreg_event_query(event));
  REQUIRE_OK(openreg_stream_synchronize(0, 4));
  REQUIRE(counter == 1);
  REQUIRE_OK(openreg_stream_wait_event(0, 5, event));
  REQUIRE(openreg_stream_is_idle(0, 5));
  openreg_event_destroy(event);
  helper_cue(&exporter);
  helper_finish(&exporter);
}

CHILD_TEST(an_event_that_was_recorded_before_it_was_exported_is_waited_for) {
  wait_in_every_way(record_and_export);
}

CHILD_TEST(an_event_that_was_recorded_after_it_was_exported_is_waited_for) {
  wait_in_every_way(export_and_record);
}

static void export_unrecorded(void) {
  openreg_event *event = make_event(0);
  REQUIRE_OK(openreg_event_export(event, &board->handles[0]));
  report(0);
  await_cue();
  REQUIRE_OK(openreg_event_record(event, 0));
  report(0);
  await_cue();
  openreg_event_destroy(event);
  report(0);
  await_cue();
}

CHILD_TEST(unsupported_operations_on_an_imported_event_are_rejected) {
  board_make();
  helper exporter = helper_start(export_unrecorded);
  openreg_ipc_handle handle;
  double milliseconds;
  helper_receive(&exporter);
  openreg_event *event = import_event(0), *again = import_event(0);
  REQUIRE_OK(openreg_event_query(event));
  REQUIRE_OK(openreg_event_synchronize(event));
  REQUIRE_OK(openreg_stream_wait_event(0, 1, event));
  REQUIRE(openreg_event_export(event, &handle) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strstr(openreg_last_error(), "an imported event cannot be exported") != NULL);
  REQUIRE(openreg_event_elapsed_ms(event, again, &milliseconds) == OPENREG_INVALID_ARGUMENT);
  helper_cue(&exporter);
  helper_receive(&exporter);
  REQUIRE_OK(openreg_event_query(event));
  openreg_event_destroy(event);
  REQUIRE_OK(openreg_event_query(again));
  openreg_event_destroy(again);
  helper_cue(&exporter);
  helper_receive(&exporter);
  REQUIRE(openreg_event_import(&board->handles[0], &event) == OPENREG_INVALID_ARGUMENT);
  helper_cue(&exporter);
  helper_finish(&exporter);
}

static openreg_status synchronize_on_worker(void *event) {
  return openreg_event_synchronize(event);
}

CHILD_TEST(work_of_streams_does_not_wait_for_imported_events) {
  board_make();
  helper exporter = helper_start(export_and_record);
  helper_receive(&exporter);
  openreg_event *event = import_event(0);
  REQUIRE_OK(openreg_stream_launch(0, 0, synchronize_on_worker, event));
  REQUIRE(openreg_stream_synchronize(0, 0) == OPENREG_NOT_PERMITTED);
  helper_kill(&exporter);
}

static void destroy_behind_gate(void) {
  gate gate = GATE_CLOSED;
  openreg_event *event = make_event(1);
  gate_close_stream(&gate, 1, 2);
  REQUIRE_OK(openreg_event_record(event, 2));
  REQUIRE_OK(openreg_event_export(event, &board->handles[0]));
  report(0);
  await_cue();
  openreg_event_destroy(event);
  gate_open(&gate);
  REQUIRE_OK(openreg_stream_synchronize(1, 2));
  /* The importer still has the entry, so others get different entries. */
  openreg_ipc_handle handle;
  openreg_event *other[8];
  for (int i = 0; i < 8; i++) {
    other[i] = make_event(1);
    REQUIRE_OK(openreg_event_export(other[i], &handle));
  }
  static struct gate never = GATE_CLOSED;
  gate_close_stream(&never, 1, 3);
  for (int i = 0; i < 8; i++)
    REQUIRE_OK(openreg_event_record(other[i], 3));
  report(0);
  await_cue();
}

CHILD_TEST(an_imported_event_outlives_the_exporters) {
  board_make();
  helper exporter = helper_start(destroy_behind_gate);
  helper_receive(&exporter);
  openreg_event *event = import_event(0), *refused;
  REQUIRE(openreg_event_query(event) == OPENREG_NOT_READY);
  helper_cue(&exporter);
  helper_receive(&exporter);
  REQUIRE_OK(openreg_event_query(event));
  REQUIRE(openreg_event_import(&board->handles[0], &refused) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strstr(openreg_last_error(),
                 "its exporter has withdrawn the memory or destroyed the event") != NULL);
  helper_kill(&exporter);
  REQUIRE_OK(openreg_event_query(event));
  openreg_event_destroy(event);
}

/* Creates and destroys as many other events as there are entries, except the imported one. */
static void destroy_before_importers_close(void) {
  openreg_event *event = make_event(0);
  REQUIRE_OK(openreg_event_export(event, &board->handles[0]));
  report(0);
  await_cue();
  openreg_event_destroy(event);
  report(0);
  await_cue();
  openreg_ipc_handle handle;
  static openreg_event *others[OPENREG_EXPORT_COUNT];
  for (size_t i = 0; i < OPENREG_EXPORT_COUNT; i++) {
    others[i] = make_event(0);
    REQUIRE_OK(openreg_event_export(others[i], &handle));
  }
  for (size_t i = 0; i < OPENREG_EXPORT_COUNT; i++)
    openreg_event_destroy(others[i]);
}

CHILD_TEST(entries_of_events_are_reused_after_importers_close_them) {
  board_make();
  helper exporter = helper_start(destroy_before_importers_close);
  helper_receive(&exporter);
  openreg_event *event = import_event(0);
  helper_cue(&exporter);
  helper_receive(&exporter);
  openreg_event_destroy(event);
  helper_cue(&exporter);
  helper_finish(&exporter);
}

static openreg_status run_until_shut_down(void *unused) {
  (void)unused;
  while (!openreg_streams_are_shut_down())
    sched_yield();
  return OPENREG_OK;
}

static void drop_recorded_work(void) {
  openreg_event *event = make_event(0);
  REQUIRE_OK(openreg_event_export(event, &board->handles[0]));
  REQUIRE_OK(openreg_stream_launch(0, 0, run_until_shut_down, NULL));
  REQUIRE_OK(openreg_stream_launch(0, 0, set_number, number(1)));
  REQUIRE_OK(openreg_event_record(event, 0));
  report(0);
  await_cue();
  openreg_streams_shut_down();
  report(0);
  await_cue();
  openreg_event_destroy(event);
}

CHILD_TEST(work_that_was_dropped_was_not_reached) {
  board_make();
  helper exporter = helper_start(drop_recorded_work);
  helper_receive(&exporter);
  openreg_event *event = import_event(0);
  helper_cue(&exporter);
  helper_receive(&exporter);
  REQUIRE(openreg_event_query(event) == OPENREG_NOT_READY);
  helper_kill(&exporter);
  REQUIRE(openreg_event_synchronize(event) == OPENREG_LAUNCH_FAILURE);
  REQUIRE(board->numbers[0] == 0);
  openreg_event_destroy(event);
}

CHILD_TEST(waiting_for_an_event_of_a_process_that_is_killed_fails) {
  board_make();
  helper exporter = helper_start(export_and_record);
  helper_receive(&exporter);
  openreg_event *event = import_event(0);
  REQUIRE_OK(openreg_stream_wait_event(0, 4, event));
  helper_kill(&exporter);
  REQUIRE(openreg_stream_synchronize(0, 4) == OPENREG_LAUNCH_FAILURE);
  REQUIRE(openreg_event_synchronize(event) == OPENREG_LAUNCH_FAILURE);
  REQUIRE(openreg_event_query(event) == OPENREG_LAUNCH_FAILURE);
  REQUIRE(strstr(openreg_last_error(), "before it finished work on its device 1") != NULL);
  openreg_event_destroy(event);
}

/* ---- taking turns ---------------------------------------------------------------------------- */

enum { ROUNDS = 2000 };

static openreg_status check_and_set(void *round) {
  uint64_t expected = 2 * (uint64_t)(uintptr_t)round;
  if (board->numbers[0] != expected)
    return openreg_fail(OPENREG_LAUNCH_FAILURE, "out of order");
  board->numbers[0] = expected + 1;
  return OPENREG_OK;
}

static openreg_status check_and_set_back(void *round) {
  uint64_t expected = 2 * (uint64_t)(uintptr_t)round + 1;
  if (board->numbers[0] != expected)
    return openreg_fail(OPENREG_LAUNCH_FAILURE, "out of order");
  board->numbers[0] = expected + 1;
  return OPENREG_OK;
}

/* Two processes take turns by means of two events. Cues and reports only keep the recordings in
 * order. */
static void take_turns(void) {
  openreg_event *mine = make_event(0);
  REQUIRE_OK(openreg_event_export(mine, &board->handles[1]));
  report(0);
  await_cue();
  openreg_event *theirs = import_event(0);
  for (uintptr_t round = 0; round < ROUNDS; round++) {
    await_cue();
    REQUIRE_OK(openreg_stream_wait_event(0, 1, theirs));
    REQUIRE_OK(openreg_stream_launch(0, 1, check_and_set_back, number(round)));
    REQUIRE_OK(openreg_event_record(mine, 1));
    report(0);
  }
  REQUIRE_OK(openreg_stream_synchronize(0, 1));
  openreg_event_destroy(mine);
  openreg_event_destroy(theirs);
}

CHILD_TEST(two_processes_take_turns_by_events) {
  board_make();
  helper other = helper_start(take_turns);
  openreg_event *mine = make_event(0);
  helper_receive(&other);
  REQUIRE_OK(openreg_event_export(mine, &board->handles[0]));
  openreg_event *theirs = import_event(1);
  helper_cue(&other);
  for (uintptr_t round = 0; round < ROUNDS; round++) {
    REQUIRE_OK(openreg_stream_wait_event(0, 1, theirs));
    REQUIRE_OK(openreg_stream_launch(0, 1, check_and_set, number(round)));
    REQUIRE_OK(openreg_event_record(mine, 1));
    helper_cue(&other);
    helper_receive(&other);
  }
  REQUIRE_OK(openreg_stream_synchronize(0, 1));
  helper_finish(&other);
  REQUIRE(board->numbers[0] == 2 * ROUNDS);
  openreg_event_destroy(mine);
  openreg_event_destroy(theirs);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(events_with_timing_are_not_exported),
      cmocka_unit_test(an_exported_event_still_works_in_its_own_process),
      cmocka_unit_test(an_exported_event_is_not_recorded_from_within_a_streams_own_work),
      cmocka_unit_test(destroyed_events_leave_no_entries),
      cmocka_unit_test(an_event_may_be_destroyed_before_it_is_reached),
      cmocka_unit_test(an_event_that_was_recorded_before_it_was_exported_is_waited_for),
      cmocka_unit_test(an_event_that_was_recorded_after_it_was_exported_is_waited_for),
      cmocka_unit_test(unsupported_operations_on_an_imported_event_are_rejected),
      cmocka_unit_test(work_of_streams_does_not_wait_for_imported_events),
      cmocka_unit_test(an_imported_event_outlives_the_exporters),
      cmocka_unit_test(entries_of_events_are_reused_after_importers_close_them),
      cmocka_unit_test(work_that_was_dropped_was_not_reached),
      cmocka_unit_test(waiting_for_an_event_of_a_process_that_is_killed_fails),
      cmocka_unit_test(two_processes_take_turns_by_events),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
