/* Exporting memory: what can be exported, and withdrawing it. */
#define _GNU_SOURCE
#include "board.h"
#include "device/ipc/exports.h"
#include "gate.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- rejected -------------------------------------------------------------------------------- */

CHILD_TEST(only_device_memory_can_be_exported) {
  static char host[PAGE];
  openreg_ipc_handle handle;
  REQUIRE(openreg_ipc_export(host, 512, 0, &handle) == OPENREG_INVALID_ADDRESS);
  char *base = base_of(0);
  REQUIRE(openreg_ipc_export(host, 512, 0, &handle) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_ipc_export(base - 512, 512, 0, &handle) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_ipc_export(base + arena_bytes() - 512, 1024, 0, &handle) ==
          OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_ipc_export(base, SIZE_MAX, 0, &handle) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_ipc_export(openreg_kernel_view(base), 512, 0, &handle) ==
          OPENREG_INVALID_ADDRESS);
}

CHILD_TEST(exports_begin_at_multiples_of_512_and_have_bytes) {
  openreg_ipc_handle handle;
  char *base = base_of(1);
  REQUIRE(openreg_ipc_export(base, 0, 0, &handle) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strstr(openreg_last_error(), "cannot export 0 bytes") != NULL);
  REQUIRE(openreg_ipc_export(base + 256, 512, 0, &handle) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strstr(openreg_last_error(), "multiple of 512") != NULL);
  REQUIRE(openreg_ipc_export(base, 512, OPENREG_STREAMS_PER_DEVICE, &handle) ==
          OPENREG_INVALID_ARGUMENT);
  REQUIRE(openreg_ipc_export(base, 512, -1, &handle) == OPENREG_INVALID_ARGUMENT);
  REQUIRE_OK(openreg_ipc_export(base + 512, 1, 0, &handle));
}

CHILD_TEST(a_range_is_exported_again_only_with_the_same_size) {
  openreg_ipc_handle one, other;
  char *base = base_of(0);
  export_memory(base + PAGE, PAGE, &one);
  export_memory(base + PAGE, PAGE, &other);
  REQUIRE(openreg_ipc_export(base + PAGE, 2 * PAGE, 0, &other) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strstr(openreg_last_error(),
                 "cannot export 8192 bytes: 4096 bytes at the same address are already exported"));
}

CHILD_TEST(only_exported_memory_can_be_withdrawn) {
  static char host[PAGE];
  openreg_ipc_handle handle;
  REQUIRE(openreg_ipc_withdraw(host) == OPENREG_INVALID_ARGUMENT);
  char *base = base_of(0);
  REQUIRE(openreg_ipc_withdraw(host) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(openreg_ipc_withdraw(NULL) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(openreg_ipc_withdraw(base) == OPENREG_INVALID_ARGUMENT);
  export_memory(base, PAGE, &handle);
  REQUIRE(openreg_ipc_withdraw(base + 512) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(openreg_ipc_withdraw(base_of(1)) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strstr(openreg_last_error(), "no exported memory begins at") != NULL);
}

CHILD_TEST(memory_that_was_never_opened_is_not_released) {
  openreg_ipc_handle handle;
  char *base = base_of(0);
  export_memory(base, PAGE, &handle);
  REQUIRE(openreg_ipc_withdraw(base) == OPENREG_NOT_READY);
  REQUIRE(openreg_ipc_withdraw(base) == OPENREG_NOT_READY);
}

CHILD_TEST(exporting_inside_the_streams_work_is_rejected_and_leaves_nothing) {
  openreg_ipc_handle handle;
  char *base = base_of(0);
  REQUIRE_OK(openreg_stream_try_begin_inline(0, 3));
  REQUIRE(openreg_ipc_export(base, PAGE, 3, &handle) == OPENREG_NOT_PERMITTED);
  REQUIRE(openreg_ipc_withdraw(base) == OPENREG_INVALID_ARGUMENT);
  openreg_stream_end_inline(0, 3);
  REQUIRE_OK(openreg_ipc_export(base, PAGE, 3, &handle));
}

CHILD_TEST(the_number_of_exports_is_limited) {
  openreg_ipc_handle handle;
  openreg_event *event;
  char *base = base_of(0);
  for (size_t i = 0; i < OPENREG_EXPORT_COUNT; i++)
    export_memory(base + i * 512, 512, &handle);
  REQUIRE(openreg_ipc_export(base + OPENREG_EXPORT_COUNT * 512, 512, 0, &handle) ==
          OPENREG_OUT_OF_MEMORY);
  REQUIRE(strstr(openreg_last_error(), "device 0 has 32767 exported ranges and events") != NULL);
  export_memory(base, 512, &handle); /* exported already: uses its entry */
  REQUIRE_OK(openreg_event_create(0, false, &event));
  REQUIRE(openreg_event_export(event, &handle) == OPENREG_OUT_OF_MEMORY);
  REQUIRE_OK(openreg_event_record(event, 0));
  openreg_event_destroy(event);
  export_memory(base_of(1), 512, &handle); /* a different device's table */
}

/* ---- withdrawing ----------------------------------------------------------------------------- */

static void open_and_close(void) {
  await_cue();
  char *address = open_memory(&board->handles[0]);
  report(0);
  await_cue();
  REQUIRE_OK(openreg_ipc_close(address));
  report(0);
  await_cue();
}

static void open_and_end(void) {
  await_cue();
  open_memory(&board->handles[0]);
  report(0);
  await_cue();
}

CHILD_TEST(memory_is_released_when_the_importer_closes_it) {
  board_make();
  helper importer = helper_start(open_and_close);
  char *base = base_of(0);
  export_memory(base, PAGE, &board->handles[0]);
  helper_step(&importer);
  REQUIRE(openreg_ipc_withdraw(base) == OPENREG_NOT_READY);
  helper_step(&importer);
  REQUIRE_OK(openreg_ipc_withdraw(base));
  REQUIRE(openreg_ipc_withdraw(base) == OPENREG_INVALID_ARGUMENT);
  helper_dismiss(&importer);
}

static void open_two_and_close_one(void) {
  await_cue();
  char *first = open_memory(&board->handles[0]);
  open_memory(&board->handles[1]);
  REQUIRE_OK(openreg_ipc_close(first));
  report(0);
  await_cue();
}

CHILD_TEST(memory_is_released_by_ranges) {
  board_make();
  helper importer = helper_start(open_two_and_close_one);
  char *base = base_of(0);
  export_memory(base, PAGE, &board->handles[0]);
  export_memory(base + PAGE, PAGE, &board->handles[1]);
  helper_step(&importer);
  REQUIRE_OK(openreg_ipc_withdraw(base));
  REQUIRE(openreg_ipc_withdraw(base + PAGE) == OPENREG_NOT_READY);
  helper_dismiss(&importer);
  REQUIRE_OK(openreg_ipc_withdraw(base + PAGE));
}

CHILD_TEST(memory_is_released_when_the_importer_exits) {
  board_make();
  helper importer = helper_start(open_and_end);
  char *base = base_of(0);
  export_memory(base + PAGE, PAGE, &board->handles[0]);
  helper_step(&importer);
  REQUIRE(openreg_ipc_withdraw(base + PAGE) == OPENREG_NOT_READY);
  helper_dismiss(&importer);
  REQUIRE_OK(openreg_ipc_withdraw(base + PAGE));
}

CHILD_TEST(memory_is_released_when_the_importer_is_killed) {
  board_make();
  helper importer = helper_start(open_and_end);
  char *base = base_of(1);
  export_memory(base, 3 * MIB, &board->handles[0]);
  helper_step(&importer);
  REQUIRE(openreg_ipc_withdraw(base) == OPENREG_NOT_READY);
  helper_kill(&importer);
  REQUIRE_OK(openreg_ipc_withdraw(base));
}

/* Forks a process that outlives this one. */
static void open_and_fork(void) {
  int ends[2];
  char byte = 0;
  await_cue();
  open_memory(&board->handles[0]);
  REQUIRE(pipe(ends) == 0);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    REQUIRE(write(ends[1], &byte, 1) == 1); /* the fork handlers have run */
    for (;;)
      pause();
  }
  REQUIRE(read(ends[0], &byte, 1) == 1);
  report((uint64_t)child);
  await_cue();
}

CHILD_TEST(memory_is_released_by_a_killed_importer_that_forked) {
  board_make();
  helper importer = helper_start(open_and_fork);
  char *base = base_of(1);
  export_memory(base, PAGE, &board->handles[0]);
  pid_t grandchild = (pid_t)helper_step(&importer);
  helper_kill(&importer);
  openreg_status status = openreg_ipc_withdraw(base);
  REQUIRE(kill(grandchild, SIGKILL) == 0);
  REQUIRE_OK(status);
}

CHILD_TEST(memory_is_released_when_the_last_importer_closes_it) {
  enum { IMPORTERS = 3 };
  board_make();
  helper importers[IMPORTERS];
  for (int i = 0; i < IMPORTERS; i++)
    importers[i] = helper_start(open_and_end);
  char *base = base_of(0);
  for (int i = 0; i < IMPORTERS; i++) {
    export_memory(base, MIB, &board->handles[0]);
    helper_step(&importers[i]);
  }
  for (int i = 0; i < IMPORTERS; i++) {
    REQUIRE(openreg_ipc_withdraw(base) == OPENREG_NOT_READY);
    helper_kill(&importers[i]);
  }
  REQUIRE_OK(openreg_ipc_withdraw(base));
}

CHILD_TEST(a_handle_in_transit_keeps_the_memory) {
  board_make();
  helper importer = helper_start(open_and_close);
  openreg_ipc_handle second;
  char *base = base_of(0);
  export_memory(base, PAGE, &board->handles[0]);
  export_memory(base, PAGE, &second);
  helper_step(&importer);
  helper_step(&importer);
  REQUIRE(openreg_ipc_withdraw(base) == OPENREG_NOT_READY);
  helper_dismiss(&importer);
}

CHILD_TEST(entries_are_reused) {
  board_make();
  helper importer = helper_start(open_and_close);
  char *base = base_of(0);
  export_memory(base, PAGE, &board->handles[0]);
  helper_step(&importer);
  helper_step(&importer);
  REQUIRE_OK(openreg_ipc_withdraw(base));
  for (size_t i = 0; i < OPENREG_EXPORT_COUNT; i++)
    export_memory(base + i * 512, 512, &board->handles[0]);
  helper_dismiss(&importer);
}

CHILD_TEST(memory_may_be_withdrawn_before_the_awaited_work_is_done) {
  gate gate = GATE_CLOSED;
  board_make();
  helper importer = helper_start(open_and_end);
  char *base = base_of(0);
  gate_close_stream(&gate, 0, 0);
  export_memory(base, PAGE, &board->handles[0]);
  helper_step(&importer);
  helper_kill(&importer);
  REQUIRE_OK(openreg_ipc_withdraw(base));
  export_memory(base, PAGE, &board->handles[1]);
  gate_open(&gate);
  REQUIRE_OK(openreg_stream_synchronize(0, 0));
}

/* ---- forks ----------------------------------------------------------------------------------- */

static char *exported_here;

static void in_forked_child(void) {
  openreg_ipc_handle handle;
  REQUIRE(openreg_ipc_export(exported_here, PAGE, 0, &handle) == OPENREG_BAD_FORK);
  REQUIRE(openreg_ipc_withdraw(exported_here) == OPENREG_BAD_FORK);
}

CHILD_TEST(a_forked_child_exports_nothing) {
  openreg_ipc_handle handle;
  exported_here = base_of(0);
  export_memory(exported_here, PAGE, &handle);
  int descriptors = count_descriptors();
  child_fork_and_require(in_forked_child);
  REQUIRE(count_descriptors() == descriptors);
  export_memory(exported_here, PAGE, &handle);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(only_device_memory_can_be_exported),
      cmocka_unit_test(exports_begin_at_multiples_of_512_and_have_bytes),
      cmocka_unit_test(a_range_is_exported_again_only_with_the_same_size),
      cmocka_unit_test(only_exported_memory_can_be_withdrawn),
      cmocka_unit_test(memory_that_was_never_opened_is_not_released),
      cmocka_unit_test(exporting_inside_the_streams_work_is_rejected_and_leaves_nothing),
      cmocka_unit_test(the_number_of_exports_is_limited),
      cmocka_unit_test(memory_is_released_when_the_importer_closes_it),
      cmocka_unit_test(memory_is_released_by_ranges),
      cmocka_unit_test(memory_is_released_when_the_importer_exits),
      cmocka_unit_test(memory_is_released_when_the_importer_is_killed),
      cmocka_unit_test(memory_is_released_by_a_killed_importer_that_forked),
      cmocka_unit_test(memory_is_released_when_the_last_importer_closes_it),
      cmocka_unit_test(a_handle_in_transit_keeps_the_memory),
      cmocka_unit_test(entries_are_reused),
      cmocka_unit_test(memory_may_be_withdrawn_before_the_awaited_work_is_done),
      cmocka_unit_test(a_forked_child_exports_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
