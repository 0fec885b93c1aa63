/* Importing: the same bytes in two processes, for as long as anybody has them. */
#define _GNU_SOURCE
#include "board.h"
#include "gate.h"
#include "imports.h"
#include "range_lock.h"
#include "stream.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GRANULE = 2 * MIB };

/* Exporters write these bytes, export ranges in them, and stay until they are told to end. */
static void fill_and_export(size_t bytes, int count, const size_t offsets[], const size_t sizes[]) {
  char *base = base_of(1);
  REQUIRE_OK(openreg_ledger_take(1, bytes));
  REQUIRE_OK(openreg_fill(base, 0x5A, bytes));
  for (int i = 0; i < count; i++)
    export_memory(base + offsets[i], sizes[i], &board->handles[i]);
  report(0);
  await_cue();
}

/* ---- the same bytes -------------------------------------------------------------------------- */

enum { AT = GRANULE - 512 };

static void export_and_look(void) {
  char *base = base_of(1);
  poke(base + AT, 1);
  poke(base + AT + 3 * PAGE - 1, 2);
  export_memory(base + AT, 3 * PAGE, &board->handles[0]);
  report(0);
  await_cue();
  REQUIRE(peek(base + AT) == 3 && peek(base + AT + 3 * PAGE - 1) == 4);
  poke(base + AT + PAGE, 5);
  report(0);
  await_cue();
}

CHILD_TEST(importer_and_exporter_have_the_same_bytes) {
  board_make();
  actor exporter = actor_start(export_and_look);
  void *address;
  size_t bytes = 0;
  int device = -1;
  actor_hear(&exporter);
  REQUIRE_OK(openreg_ipc_open(&board->handles[0], 0, &address, &bytes, &device));
  char *memory = address;
  REQUIRE(device == 1 && bytes == 3 * PAGE);
  REQUIRE(peek(memory) == 1 && peek(memory + bytes - 1) == 2);
  poke(memory, 3);
  poke(memory + bytes - 1, 4);
  actor_cue(&exporter);
  actor_hear(&exporter);
  REQUIRE(peek(memory + PAGE) == 5);
  REQUIRE(*(char *)openreg_kernel_view(memory + PAGE) == 5);
  actor_cue(&exporter);
  actor_finish(&exporter);
}

static const size_t three_offsets[] = {0, 512, GRANULE - PAGE};
static const size_t three_sizes[] = {512, PAGE, 2 * GRANULE};

static void export_three(void) {
  fill_and_export(8 * MIB, 3, three_offsets, three_sizes);
}

CHILD_TEST(an_import_is_memory_of_its_device_and_ends_where_it_ends) {
  board_make();
  actor exporter = actor_start(export_three);
  actor_hear(&exporter);
  char *small = open_memory(&board->handles[0]), *large = open_memory(&board->handles[2]);
  char host = 0;
  REQUIRE(openreg_arena_device_of(small) == 1);
  REQUIRE(openreg_arena_device_of(large + 2 * GRANULE - 1) == 1);
  REQUIRE(openreg_arena_device_of(openreg_kernel_view(small)) == -1);
  /* Their granules lie side by side; nothing goes from one import to the other. */
  REQUIRE(small + 2 * GRANULE - PAGE == large || small > large);
  REQUIRE(openreg_copy(&host, small + GRANULE - 1, 2) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_fill(large, 0, 3 * GRANULE) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_fill(small, 0, SIZE_MAX) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_fill(small, 0, SIZE_MAX / 2) == OPENREG_INVALID_ADDRESS);
  REQUIRE_OK(openreg_fill(large, 0, 2 * GRANULE));
  REQUIRE(openreg_fill(base_of(1) + 64 * MIB - 1, 0, 2) == OPENREG_INVALID_ADDRESS);
  REQUIRE_OK(openreg_ipc_close(small));
  REQUIRE(openreg_arena_device_of(small) == -1);
  REQUIRE(openreg_copy(&host, small, 1) == OPENREG_INVALID_ADDRESS);
  actor_cue(&exporter);
  actor_finish(&exporter);
}

CHILD_TEST(imports_are_neither_released_nor_exported_here) {
  board_make();
  actor exporter = actor_start(export_three);
  openreg_ipc_handle handle;
  actor_hear(&exporter);
  char *memory = open_memory(&board->handles[0]);
  REQUIRE(openreg_arena_release(memory, PAGE) == OPENREG_INVALID_ADDRESS);
  REQUIRE(strstr(openreg_last_error(), "belong to another process") != NULL);
  REQUIRE(openreg_ipc_export(memory, 512, 0, &handle) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(openreg_ipc_withdraw(memory) == OPENREG_INVALID_ARGUMENT);
  actor_cue(&exporter);
  actor_finish(&exporter);
}

CHILD_TEST(imports_of_the_same_granules_are_mapped_once) {
  board_make();
  actor exporter = actor_start(export_three);
  actor_hear(&exporter);
  char *first = open_memory(&board->handles[0]);
  int mappings = count_mappings();
  char *second = open_memory(&board->handles[1]);
  REQUIRE(second == first + 512);
  REQUIRE(count_mappings() == mappings);
  REQUIRE_OK(openreg_ipc_close(first));
  REQUIRE(peek(second) == 0x5A);
  REQUIRE(openreg_ipc_close(first) == OPENREG_INVALID_ARGUMENT);
  REQUIRE_OK(openreg_ipc_close(second));
  actor_cue(&exporter);
  actor_finish(&exporter);
}

CHILD_TEST(opening_again_gives_the_same_address_and_one_import_more) {
  board_make();
  actor exporter = actor_start(export_three);
  actor_hear(&exporter);
  char *first = open_memory(&board->handles[2]);
  REQUIRE(open_memory(&board->handles[2]) == first);
  REQUIRE_OK(openreg_ipc_close(first));
  REQUIRE(peek(first) == 0x5A);
  REQUIRE_OK(openreg_ipc_close(first));
  REQUIRE(openreg_arena_device_of(first) == -1);
  REQUIRE(openreg_ipc_close(first) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strstr(openreg_last_error(), "no imported memory begins at") != NULL);
  actor_cue(&exporter);
  actor_finish(&exporter);
}

CHILD_TEST(only_imports_are_closed) {
  int host;
  REQUIRE(openreg_ipc_close(&host) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(openreg_ipc_close(base_of(0)) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(openreg_ipc_close(NULL) == OPENREG_INVALID_ARGUMENT);
}

CHILD_TEST(nothing_is_left_of_imports_that_were_closed) {
  board_make();
  actor exporter = actor_start(export_three);
  actor_hear(&exporter);
  REQUIRE_OK(openreg_initialize());
  int descriptors = 0, mappings = count_mappings();
  for (int round = 0; round < 20; round++) {
    char *memory[3];
    for (int i = 0; i < 3; i++)
      memory[i] = open_memory(&board->handles[i]);
    for (int i = 0; i < 3; i++)
      REQUIRE_OK(openreg_ipc_close(memory[(i + round) % 3]));
    if (round == 0) /* the first import of all starts a thread, which stays */
      descriptors = count_descriptors();
  }
  REQUIRE(openreg_peer_files == NULL);
  REQUIRE(count_descriptors() == descriptors);
  REQUIRE(count_mappings() == mappings);
  actor_cue(&exporter);
  actor_finish(&exporter);
}

static void host_access_body(void) {
  board_make();
  actor exporter = actor_start(export_three);
  actor_hear(&exporter);
  char *memory = open_memory(&board->handles[1]);
  REQUIRE(memory[PAGE - 1] == 0x5A);
  REQUIRE_OK(openreg_ipc_close(memory));
  actor_cue(&exporter);
  actor_finish(&exporter);
}

static void with_host_access_imports_are_touched_directly(void **state) {
  (void)state;
  child_expect_pass(
      host_access_body,
      ENVIRONMENT("OPENREG_DEVICE_COUNT=2", "OPENREG_DEVICE_MEMORY=64M", "OPENREG_HOST_ACCESS=1"));
}

/* ---- room ------------------------------------------------------------------------------------ */

static void export_all(void) {
  fill_and_export(PAGE, 1, (size_t[]){0}, (size_t[]){64 * MIB});
}

static void export_all_too(void) {
  export_memory(base_of(1), 64 * MIB, &board->handles[1]);
  report(0);
  await_cue();
}

CHILD_TEST(there_is_room_for_as_much_as_the_device_has) {
  board_make();
  actor one = actor_start(export_all), other = actor_start(export_all_too);
  actor_hear(&one);
  actor_hear(&other);
  void *address;
  size_t bytes;
  int device;
  char *memory = open_memory(&board->handles[0]);
  REQUIRE(openreg_ipc_open(&board->handles[1], 0, &address, &bytes, &device) ==
          OPENREG_OUT_OF_MEMORY);
  REQUIRE(strstr(openreg_last_error(), "device 1 has no room left for 67108864 bytes") != NULL);
  poke(memory + 64 * MIB - 1, 1);
  REQUIRE_OK(openreg_ipc_close(memory));
  poke(open_memory(&board->handles[1]) + 64 * MIB - 1, 1);
  actor_kill(&one);
  actor_kill(&other);
}

/* ---- touching -------------------------------------------------------------------------------- */

static void touch_an_import(void) {
  board_make();
  actor exporter = actor_start(export_three);
  actor_hear(&exporter);
  volatile char *memory = open_memory(&board->handles[0]);
  (void)*memory;
}

static void the_host_that_touches_an_import_is_told(void **state) {
  (void)state;
  child_result result;
  child_expect_signal(&result, SIGSEGV, touch_an_import, SMALL_DEVICES);
  assert_non_null(strstr(result.errors, "openreg: the host touched address"));
  assert_non_null(strstr(result.errors, " of device openreg:1 that belongs to another process "
                                        "(memory of a device cannot be touched by the host"));
}

static char *imported_here;

static void in_forked_child(void) {
  void *address;
  size_t bytes;
  int device;
  REQUIRE(openreg_ipc_open(&board->handles[0], 0, &address, &bytes, &device) == OPENREG_BAD_FORK);
  REQUIRE(openreg_ipc_close(imported_here) == OPENREG_BAD_FORK);
  REQUIRE(openreg_arena_device_of(imported_here) == 1); /* still reserved */
  for (int i = 3; i < 256; i++) {
    char link[64], target[256] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", i);
    ssize_t length = readlink(link, target, sizeof target - 1);
    REQUIRE(length < 0 || strncmp(target, "/memfd:openreg", 14) != 0);
  }
}

CHILD_TEST(a_forked_child_has_no_imports) {
  board_make();
  actor exporter = actor_start(export_three);
  actor_hear(&exporter);
  imported_here = open_memory(&board->handles[0]);
  child_fork_and_require(in_forked_child);
  REQUIRE(peek(imported_here) == 0x5A);
  actor_cue(&exporter);
  actor_finish(&exporter);
}

CHILD_TEST(imports_fault_in_a_forked_child) {
  board_make();
  actor exporter = actor_start(export_three);
  actor_hear(&exporter);
  char *memory = open_memory(&board->handles[2]);
  int wait_status;
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    *(volatile char *)openreg_kernel_view(memory + GRANULE) = 1;
    _exit(0);
  }
  REQUIRE(waitpid(child, &wait_status, 0) == child);
  REQUIRE(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGSEGV);
  REQUIRE(peek(memory + GRANULE) == 0x5A);
  actor_cue(&exporter);
  actor_finish(&exporter);
}

/* ---- ends ------------------------------------------------------------------------------------ */

CHILD_TEST(imports_outlive_an_exporter_that_exits) {
  board_make();
  actor exporter = actor_start(export_three);
  actor_hear(&exporter);
  char *memory = open_memory(&board->handles[2]);
  actor_cue(&exporter);
  actor_finish(&exporter);
  REQUIRE(peek(memory) == 0x5A && peek(memory + 2 * GRANULE - 1) == 0x5A);
  poke(memory, 7);
  REQUIRE(peek(memory) == 7);
  REQUIRE_OK(openreg_ipc_close(memory));
}

CHILD_TEST(imports_outlive_an_exporter_that_is_killed) {
  board_make();
  actor exporter = actor_start(export_three);
  actor_hear(&exporter);
  char *memory = open_memory(&board->handles[2]);
  actor_kill(&exporter);
  REQUIRE(peek(memory) == 0x5A && peek(memory + 2 * GRANULE - 1) == 0x5A);
  REQUIRE_OK(openreg_ipc_close(memory));
}

CHILD_TEST(handles_of_a_process_that_ended_are_refused) {
  board_make();
  actor exporter = actor_start(export_three);
  void *address = NULL;
  size_t bytes;
  int device;
  actor_hear(&exporter);
  char *memory = open_memory(&board->handles[2]);
  actor_kill(&exporter);
  for (int i = 0; i < 3; i++)
    REQUIRE(openreg_ipc_open(&board->handles[i], 0, &address, &bytes, &device) ==
            OPENREG_INVALID_ARGUMENT);
  REQUIRE_OK(openreg_ipc_close(memory));
  REQUIRE(openreg_ipc_open(&board->handles[2], 0, &address, &bytes, &device) ==
          OPENREG_INVALID_ARGUMENT);
  REQUIRE(strstr(openreg_last_error(), "no process of this group that lives made it") != NULL);
  REQUIRE(address == NULL);
}

/* What the file of the only peer takes of the machine's memory. */
static size_t committed_bytes(void) {
  struct stat status;
  REQUIRE(openreg_peer_files != NULL && openreg_peer_files->next == NULL);
  REQUIRE(fstat(openreg_peer_files->file, &status) == 0);
  return (size_t)status.st_blocks * 512;
}

static uint64_t used_on_1(void) {
  uint64_t free_bytes, total_bytes;
  REQUIRE_OK(openreg_ledger_query(1, &free_bytes, &total_bytes));
  return total_bytes - free_bytes;
}

/* Heirs give back in their own time: a test that fails waits for ever, and is ended. */
static void await_used_on_1(uint64_t bytes) {
  while (used_on_1() != bytes)
    sched_yield();
}

/* In this process's group, those that are dead and remembered too. */
static int count_processes(void) {
  openreg_ledger_picture *pictures;
  const char *problem;
  int count, processes = 0;
  REQUIRE_OK(openreg_ledger_list(&pictures, &count, &problem));
  for (int i = 0; i < count; i++)
    if (strstr(pictures[i].group, getenv("OPENREG_GROUP")) != NULL)
      processes = pictures[i].process_count;
  openreg_ledger_free_pictures(pictures, count);
  return processes;
}

static void open_memory_must_fail(const openreg_ipc_handle *handle) {
  void *address;
  size_t bytes;
  int device;
  REQUIRE(openreg_ipc_open(handle, 0, &address, &bytes, &device) == OPENREG_INVALID_ARGUMENT);
}

enum { FILLED = 32 * MIB, TABLE = PAGE };

static const size_t apart_offsets[] = {8 * MIB, 20 * MIB + 512};
static const size_t apart_sizes[] = {MIB, 2 * PAGE};

static void export_apart(void) {
  fill_and_export(FILLED, 2, apart_offsets, apart_sizes);
}

CHILD_TEST(what_nobody_imports_is_given_back_when_the_exporter_ends) {
  board_make();
  actor exporter = actor_start(export_apart);
  actor_hear(&exporter);
  char *one = open_memory(&board->handles[0]), *other = open_memory(&board->handles[1]);
  REQUIRE(used_on_1() == FILLED);
  REQUIRE(committed_bytes() >= FILLED);
  actor_kill(&exporter);
  await_used_on_1(MIB + 3 * PAGE); /* whole pages around what is imported */
  REQUIRE(committed_bytes() == MIB + 3 * PAGE + TABLE);
  for (size_t i = 0; i < MIB; i++)
    REQUIRE(((char *)openreg_kernel_view(one))[i] == 0x5A);
  for (size_t i = 0; i < 2 * PAGE; i++)
    REQUIRE(((char *)openreg_kernel_view(other))[i] == 0x5A);
  REQUIRE(count_processes() == 2);
  REQUIRE_OK(openreg_ipc_close(one));
  REQUIRE(used_on_1() == 3 * PAGE);
  REQUIRE(committed_bytes() == 3 * PAGE + TABLE);
  REQUIRE(peek(other) == 0x5A);
  REQUIRE_OK(openreg_ipc_close(other));
  REQUIRE(openreg_peer_files == NULL);
  REQUIRE(used_on_1() == 0);
  REQUIRE(count_processes() == 1);
}

static void import_second(void) {
  await_cue();
  char *memory = open_memory(&board->handles[1]);
  report(0);
  await_cue();
  for (size_t i = 0; i < 2 * PAGE; i++)
    REQUIRE(((char *)openreg_kernel_view(memory))[i] == 0x5A);
  REQUIRE_OK(openreg_ipc_close(memory));
  report(0);
  await_cue();
}

CHILD_TEST(heirs_leave_each_other_what_they_import) {
  board_make();
  actor exporter = actor_start(export_apart), other_heir = actor_start(import_second);
  actor_hear(&exporter);
  actor_cue(&other_heir);
  actor_hear(&other_heir);
  char *memory = open_memory(&board->handles[0]);
  actor_kill(&exporter);
  await_used_on_1(MIB + 3 * PAGE);
  actor_cue(&other_heir);
  actor_hear(&other_heir);
  await_used_on_1(MIB);
  REQUIRE(committed_bytes() == MIB + TABLE);
  REQUIRE(peek(memory + MIB - 1) == 0x5A);
  REQUIRE_OK(openreg_ipc_close(memory));
  REQUIRE(used_on_1() == 0);
  actor_cue(&other_heir);
  actor_finish(&other_heir);
}

CHILD_TEST(one_heir_at_a_time_gives_back) {
  board_make();
  actor exporter = actor_start(export_apart);
  actor_hear(&exporter);
  char *memory = open_memory(&board->handles[0]);
  int other_heir = openreg_range_lock_reopen(openreg_peer_files->file);
  uint64_t turn = openreg_export_position(64 * MIB, OPENREG_EXPORT_COUNT);
  REQUIRE(openreg_range_lock_try(other_heir, F_WRLCK, turn, 1));
  actor_kill(&exporter);
  open_memory_must_fail(&board->handles[1]);
  REQUIRE(used_on_1() == FILLED && committed_bytes() >= FILLED);
  REQUIRE(close(other_heir) == 0);
  await_used_on_1(MIB);
  REQUIRE(committed_bytes() == MIB + TABLE);
  REQUIRE_OK(openreg_ipc_close(memory));
}

static void import_second_and_stay(void) {
  await_cue();
  open_memory(&board->handles[1]);
  report(0);
  await_cue();
}

CHILD_TEST(what_a_killed_heir_had_is_given_back_by_the_next_that_lets_go) {
  board_make();
  actor exporter = actor_start(export_apart), other_heir = actor_start(import_second_and_stay);
  actor_hear(&exporter);
  actor_cue(&other_heir);
  actor_hear(&other_heir);
  char *memory = open_memory(&board->handles[0]);
  REQUIRE(openreg_ipc_close(memory) == OPENREG_OK && open_memory(&board->handles[0]) == memory);
  actor_kill(&exporter);
  await_used_on_1(MIB + 3 * PAGE);
  actor_kill(&other_heir);
  REQUIRE_OK(openreg_ipc_close(memory));
  REQUIRE(used_on_1() == 0);
}

/* ---- order ----------------------------------------------------------------------------------- */

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
  board_make();
  actor exporter = actor_start(export_behind_a_gate);
  uint64_t number = 0;
  actor_hear(&exporter);
  char *memory = open_on(&board->handles[0], 5);
  REQUIRE_OK(openreg_stream_launch(1, 5, read_number, &number));
  REQUIRE(openreg_stream_query(1, 5) == OPENREG_NOT_READY);
  open_on(&board->handles[1], 6); /* the other stream was idle */
  REQUIRE_OK(openreg_stream_query(1, 6));
  actor_cue(&exporter);
  REQUIRE_OK(openreg_stream_synchronize(1, 5));
  REQUIRE(number == 42);
  REQUIRE_OK(openreg_ipc_close(memory));
  actor_cue(&exporter);
  actor_finish(&exporter);
}

CHILD_TEST(opening_again_after_the_work_was_done_waits_for_nothing) {
  board_make();
  actor exporter = actor_start(export_behind_a_gate);
  actor_hear(&exporter);
  open_on(&board->handles[0], 5);
  actor_cue(&exporter);
  REQUIRE_OK(openreg_stream_synchronize(1, 5));
  open_on(&board->handles[0], 6);
  REQUIRE(openreg_stream_is_idle(1, 6));
  actor_cue(&exporter);
  actor_finish(&exporter);
}

CHILD_TEST(an_import_may_be_closed_while_its_wait_is_queued) {
  board_make();
  actor exporter = actor_start(export_behind_a_gate);
  actor_hear(&exporter);
  REQUIRE_OK(openreg_ipc_close(open_on(&board->handles[0], 5)));
  REQUIRE(openreg_stream_query(1, 5) == OPENREG_NOT_READY);
  actor_cue(&exporter);
  REQUIRE_OK(openreg_stream_synchronize(1, 5));
  REQUIRE(openreg_peer_files == NULL);
  actor_cue(&exporter);
  actor_finish(&exporter);
}

CHILD_TEST(a_stream_that_waits_for_a_process_that_is_killed_fails) {
  board_make();
  actor exporter = actor_start(export_behind_a_gate);
  char expected[64];
  actor_hear(&exporter);
  snprintf(expected, sizeof expected, "openreg: process %d ended before", (int)exporter.pid);
  char *memory = open_on(&board->handles[0], 5);
  actor_kill(&exporter);
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
  board_make();
  actor exporter = actor_start(export_and_drop);
  actor_hear(&exporter);
  open_on(&board->handles[0], 5);
  actor_cue(&exporter);
  actor_finish(&exporter);
  REQUIRE(openreg_stream_synchronize(1, 5) == OPENREG_LAUNCH_FAILURE);
}

static void await_work_of(int device, int stream) {
  while (atomic_load(&openreg_streams[device][stream].timeline.holder) == NULL)
    sched_yield();
}

CHILD_TEST(shutting_down_does_not_wait_for_other_processes) {
  board_make();
  actor exporter = actor_start(export_behind_a_gate);
  actor_hear(&exporter);
  open_on(&board->handles[0], 5);
  await_work_of(1, 5);
  openreg_streams_shut_down();
  REQUIRE(openreg_stream_is_idle(1, 5));
  actor_kill(&exporter);
}

CHILD_TEST(exit_does_not_wait_for_other_processes) {
  board_make();
  actor exporter = actor_start(export_behind_a_gate);
  actor_hear(&exporter);
  open_on(&board->handles[0], 5);
  await_work_of(1, 5);
}

/* The exporter is started before the variable is set, so it does not block. */
CHILD_TEST(with_blocking_launches_opening_itself_waits) {
  board_make();
  actor exporter = actor_start(export_behind_a_gate);
  void *address;
  size_t bytes;
  int device;
  actor_hear(&exporter);
  setenv("OPENREG_LAUNCH_BLOCKING", "1", 1);
  actor_cue(&exporter);
  REQUIRE_OK(openreg_ipc_open(&board->handles[0], 5, &address, &bytes, &device));
  REQUIRE(board->numbers[0] == 42);
  actor_kill(&exporter);
}

static void kill_when_told(void) {
  await_cue();
  while (board->flag == 0)
    sched_yield();
  REQUIRE(kill((pid_t)board->numbers[1], SIGKILL) == 0);
}

CHILD_TEST(with_blocking_launches_opening_itself_fails) {
  board_make();
  actor exporter = actor_start(export_behind_a_gate), killer = actor_start(kill_when_told);
  void *address = NULL;
  size_t bytes;
  int device;
  actor_hear(&exporter);
  setenv("OPENREG_LAUNCH_BLOCKING", "1", 1);
  board->numbers[1] = (uint64_t)exporter.pid;
  actor_cue(&killer);
  board->flag = 1;
  /* Killed before or while this waits: refused, or failed. */
  openreg_status status = openreg_ipc_open(&board->handles[0], 5, &address, &bytes, &device);
  REQUIRE(status == OPENREG_LAUNCH_FAILURE || status == OPENREG_INVALID_ARGUMENT);
  REQUIRE(address == NULL && openreg_peer_files == NULL);
  actor_finish(&killer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(importer_and_exporter_have_the_same_bytes),
      cmocka_unit_test(an_import_is_memory_of_its_device_and_ends_where_it_ends),
      cmocka_unit_test(imports_are_neither_released_nor_exported_here),
      cmocka_unit_test(imports_of_the_same_granules_are_mapped_once),
      cmocka_unit_test(opening_again_gives_the_same_address_and_one_import_more),
      cmocka_unit_test(only_imports_are_closed),
      cmocka_unit_test(nothing_is_left_of_imports_that_were_closed),
      cmocka_unit_test(with_host_access_imports_are_touched_directly),
      cmocka_unit_test(there_is_room_for_as_much_as_the_device_has),
      cmocka_unit_test(the_host_that_touches_an_import_is_told),
      cmocka_unit_test(a_forked_child_has_no_imports),
      cmocka_unit_test(imports_fault_in_a_forked_child),
      cmocka_unit_test(imports_outlive_an_exporter_that_exits),
      cmocka_unit_test(imports_outlive_an_exporter_that_is_killed),
      cmocka_unit_test(handles_of_a_process_that_ended_are_refused),
      cmocka_unit_test(what_nobody_imports_is_given_back_when_the_exporter_ends),
      cmocka_unit_test(heirs_leave_each_other_what_they_import),
      cmocka_unit_test(one_heir_at_a_time_gives_back),
      cmocka_unit_test(what_a_killed_heir_had_is_given_back_by_the_next_that_lets_go),
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
