/* Work on imported memory runs after the exporter's work that was submitted before the export.
 */
#define _GNU_SOURCE
#include "board.h"
#include "device/ipc/imports.h"
#include "device/streams/stream.h"
#include "gate.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static openreg_status set_number(void *unused) {
  (void)unused;
  board->numbers[0] = 42;
  return OPENREG_OK;
}

static void export_behind_a_gate(void) {
  gate gate = GATE_CLOSED;
  gate_close_stream(&gate, 1, 7);
  REQUIRE_OK(openreg_stream_launch(1, 7, set_number, NULL));
  REQUIRE_OK(openreg_ipc_export(base_of(1), PAGE, 7, &board->handles[0]));
  REQUIRE_OK(openreg_ipc_export(base_of(1) + PAGE, PAGE, 8, &board->handles[1]));
  report(0);
  await_cue();
  gate_open(&gate);
  await_cue();
  REQUIRE_OK(openreg_device_synchronize(1));
}

static openreg_status read_number(void *number) {
  *(uint64_t *)number = board->numbers[0];
  return OPENREG_OK;
}

static char *open_on(const openreg_ipc_handle *handle, int stream) {
  void *address;
  size_t bytes;
  int device;
  REQUIRE_OK(openreg_ipc_open(handle, stream, &address, &bytes, &device));
  return address;
}

CHILD_TEST(work_behind_an_import_waits_for_the_exporters_work) {
  helper exporter = board_with(export_behind_a_gate);
  uint64_t number = 0;
  char *memory = open_on(&board->handles[0], 5);
  REQUIRE_OK(openreg_stream_launch(1, 5, read_number, &number));
  REQUIRE(openreg_stream_query(1, 5) == OPENREG_NOT_READY);
  open_on(&board->handles[1], 6); /* the other stream was idle */
  REQUIRE_OK(openreg_stream_query(1, 6));
  helper_cue(&exporter);
  REQUIRE_OK(openreg_stream_synchronize(1, 5));
  REQUIRE(number == 42);
  REQUIRE_OK(openreg_ipc_close(memory));
  helper_dismiss(&exporter);
}

CHILD_TEST(opening_again_after_the_work_was_done_waits_for_nothing) {
  helper exporter = board_with(export_behind_a_gate);
  open_on(&board->handles[0], 5);
  helper_cue(&exporter);
  REQUIRE_OK(openreg_stream_synchronize(1, 5));
  open_on(&board->handles[0], 6);
  REQUIRE(openreg_stream_is_idle(1, 6));
  helper_dismiss(&exporter);
}

CHILD_TEST(an_import_may_be_closed_while_its_wait_is_queued) {
  helper exporter = board_with(export_behind_a_gate);
  REQUIRE_OK(openreg_ipc_close(open_on(&board->handles[0], 5)));
  REQUIRE(openreg_stream_query(1, 5) == OPENREG_NOT_READY);
  helper_cue(&exporter);
  REQUIRE_OK(openreg_stream_synchronize(1, 5));
  REQUIRE(openreg_peer_files == NULL);
  helper_dismiss(&exporter);
}

CHILD_TEST(a_stream_that_waits_for_a_process_that_is_killed_fails) {
  helper exporter = board_with(export_behind_a_gate);
  char expected[64];
  snprintf(expected, sizeof expected, "openreg: process %d ended before", (int)exporter.pid);
  char *memory = open_on(&board->handles[0], 5);
  helper_kill(&exporter);
  REQUIRE(openreg_stream_synchronize(1, 5) == OPENREG_LAUNCH_FAILURE);
  REQUIRE(strstr(openreg_last_error(), expected) == openreg_last_error());
  REQUIRE_OK(openreg_stream_synchronize(1, 5));
  poke(memory, 1);
  REQUIRE_OK(openreg_ipc_close(memory));
}

static void export_and_drop(void) {
  static gate gate = GATE_CLOSED;
  gate_close_stream(&gate, 1, 7);
  REQUIRE_OK(openreg_stream_launch(1, 7, set_number, NULL));
  REQUIRE_OK(openreg_ipc_export(base_of(1), PAGE, 7, &board->handles[0]));
  report(0);
  await_cue();
}

CHILD_TEST(work_that_an_exiting_process_dropped_was_not_done) {
  helper exporter = board_with(export_and_drop);
  open_on(&board->handles[0], 5);
  helper_dismiss(&exporter);
  REQUIRE(openreg_stream_synchronize(1, 5) == OPENREG_LAUNCH_FAILURE);
}

static void await_work_of(int device, int stream) {
  while (atomic_load(&openreg_streams[device][stream].timeline.owner) == NULL)
    sched_yield();
}

CHILD_TEST(shutting_down_does_not_wait_for_other_processes) {
  helper exporter = board_with(export_behind_a_gate);
  open_on(&board->handles[0], 5);
  await_work_of(1, 5);
  openreg_streams_shut_down();
  REQUIRE(openreg_stream_is_idle(1, 5));
  helper_kill(&exporter);
}

CHILD_TEST(exit_does_not_wait_for_other_processes) {
  board_with(export_behind_a_gate);
  open_on(&board->handles[0], 5);
  await_work_of(1, 5);
}

/* The exporter starts before the variable is set, so it does not block. */
CHILD_TEST(with_blocking_launches_opening_itself_waits) {
  helper exporter = board_with(export_behind_a_gate);
  void *address;
  size_t bytes;
  int device;
  setenv("OPENREG_LAUNCH_BLOCKING", "1", 1);
  helper_cue(&exporter);
  REQUIRE_OK(openreg_ipc_open(&board->handles[0], 5, &address, &bytes, &device));
  REQUIRE(board->numbers[0] == 42);
  helper_kill(&exporter);
}

static void kill_on_cue(void) {
  await_cue();
  while (board->flag == 0)
    sched_yield();
  REQUIRE(kill((pid_t)board->numbers[1], SIGKILL) == 0);
}

CHILD_TEST(with_blocking_launches_opening_itself_fails) {
  board_make();
  helper exporter = helper_start(export_behind_a_gate), killer = helper_start(kill_on_cue);
  void *address = NULL;
  size_t bytes;
  int device;
  helper_receive(&exporter);
  setenv("OPENREG_LAUNCH_BLOCKING", "1", 1);
  board->numbers[1] = (uint64_t)exporter.pid;
  helper_cue(&killer);
  board->flag = 1;
  /* The exporter is killed before or during the wait: the handle is rejected, or the work fails. */
  openreg_status status = openreg_ipc_open(&board->handles[0], 5, &address, &bytes, &device);
  REQUIRE(status == OPENREG_LAUNCH_FAILURE || status == OPENREG_INVALID_ARGUMENT);
  REQUIRE(address == NULL && openreg_peer_files == NULL);
  helper_finish(&killer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(work_behind_an_import_waits_for_the_exporters_work),
      cmocka_unit_test(opening_again_after_the_work_was_done_waits_for_nothing),
      cmocka_unit_test(an_import_may_be_closed_while_its_wait_is_queued),
      cmocka_unit_test(a_stream_that_waits_for_a_process_that_is_killed_fails),
      cmocka_unit_test(work_that_an_exiting_process_dropped_was_not_done),
      cmocka_unit_test(shutting_down_does_not_wait_for_other_processes),
      cmocka_unit_test(exit_does_not_wait_for_other_processes),
      cmocka_unit_test(with_blocking_launches_opening_itself_waits),
      cmocka_unit_test(with_blocking_launches_opening_itself_fails),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
