/* Imports outlive their exporter. When it ends, its importers release the memory that none of them
 * imports.
 */
#define _GNU_SOURCE
#include "base/proc.h"
#include "base/range_lock.h"
#include "device/ipc/imports.h"
#include "peers.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

CHILD_TEST(imports_outlive_an_exporter_that_exits) {
  helper exporter = board_with(export_three);
  char *memory = open_memory(&board->handles[2]);
  helper_dismiss(&exporter);
  REQUIRE(peek(memory) == PATTERN && peek(memory + 2 * GRANULE - 1) == PATTERN);
  poke(memory, 7);
  REQUIRE(peek(memory) == 7);
  REQUIRE_OK(openreg_ipc_close(memory));
}

CHILD_TEST(imports_outlive_an_exporter_that_is_killed) {
  helper exporter = board_with(export_three);
  char *memory = open_memory(&board->handles[2]);
  helper_kill(&exporter);
  REQUIRE(peek(memory) == PATTERN && peek(memory + 2 * GRANULE - 1) == PATTERN);
  REQUIRE_OK(openreg_ipc_close(memory));
}

CHILD_TEST(handles_of_a_process_that_ended_are_refused) {
  helper exporter = board_with(export_three);
  void *address = NULL;
  size_t bytes;
  int device;
  char *memory = open_memory(&board->handles[2]);
  helper_kill(&exporter);
  for (int i = 0; i < 3; i++)
    REQUIRE(openreg_ipc_open(&board->handles[i], 0, &address, &bytes, &device) ==
            OPENREG_INVALID_ARGUMENT);
  REQUIRE_OK(openreg_ipc_close(memory));
  REQUIRE(openreg_ipc_open(&board->handles[2], 0, &address, &bytes, &device) ==
          OPENREG_INVALID_ARGUMENT);
  REQUIRE(strstr(openreg_last_error(), "no living process of this group made it") != NULL);
  REQUIRE(address == NULL);
}

/* Memory that the file of the only peer uses on this machine. */
static size_t committed_bytes(void) {
  struct stat status;
  REQUIRE(openreg_peer_files != NULL && openreg_peer_files->next == NULL);
  REQUIRE(fstat(openreg_peer_files->file, &status) == 0);
  return (size_t)status.st_blocks * 512;
}

/* Number of processes in this process's group, including dead ones with a pinned record. */
static int count_processes(void) {
  openreg_ledger_snapshot *snapshots;
  const char *problem;
  int count, processes = 0;
  REQUIRE_OK(openreg_ledger_list(&snapshots, &count, &problem));
  for (int i = 0; i < count; i++)
    if (strstr(snapshots[i].group, getenv("OPENREG_GROUP")) != NULL)
      processes = snapshots[i].process_count;
  openreg_ledger_free_snapshots(snapshots, count);
  return processes;
}

static void open_memory_must_fail(const openreg_ipc_handle *handle) {
  void *address;
  size_t bytes;
  int device;
  REQUIRE(openreg_ipc_open(handle, 0, &address, &bytes, &device) == OPENREG_INVALID_ARGUMENT);
}

enum { FILLED = 32 * MIB };

static void export_apart(void) {
  fill_and_export(FILLED, 2, (struct range[]){{8 * MIB, MIB}, {20 * MIB + 512, 2 * page_bytes()}});
}

CHILD_TEST(unimported_memory_is_released_when_the_exporter_ends) {
  helper exporter = board_with(export_apart);
  char *one = open_memory(&board->handles[0]), *other = open_memory(&board->handles[1]);
  REQUIRE(used_on(1) == FILLED);
  REQUIRE(committed_bytes() >= FILLED);
  helper_kill(&exporter);
  await_used_on(1, MIB + 3 * page_bytes());             /* whole pages around the imported memory */
  REQUIRE(committed_bytes() == MIB + 4 * page_bytes()); /* with the export table */
  for (size_t i = 0; i < MIB; i++)
    REQUIRE(((char *)openreg_kernel_view(one))[i] == PATTERN);
  for (size_t i = 0; i < 2 * page_bytes(); i++)
    REQUIRE(((char *)openreg_kernel_view(other))[i] == PATTERN);
  REQUIRE(count_processes() == 2);
  REQUIRE_OK(openreg_ipc_close(one));
  REQUIRE(used_on(1) == 3 * page_bytes());
  REQUIRE(committed_bytes() == 4 * page_bytes());
  REQUIRE(peek(other) == PATTERN);
  REQUIRE_OK(openreg_ipc_close(other));
  REQUIRE(openreg_peer_files == NULL);
  REQUIRE(used_on(1) == 0);
  REQUIRE(count_processes() == 1);
}

static void import_second(void) {
  await_cue();
  char *memory = open_memory(&board->handles[1]);
  report(0);
  await_cue();
  for (size_t i = 0; i < 2 * page_bytes(); i++)
    REQUIRE(((char *)openreg_kernel_view(memory))[i] == PATTERN);
  REQUIRE_OK(openreg_ipc_close(memory));
  report(0);
  await_cue();
}

CHILD_TEST(importers_do_not_release_each_others_memory) {
  board_make();
  helper exporter = helper_start(export_apart), other_importer = helper_start(import_second);
  helper_receive(&exporter);
  helper_step(&other_importer);
  char *memory = open_memory(&board->handles[0]);
  helper_kill(&exporter);
  await_used_on(1, MIB + 3 * page_bytes());
  helper_step(&other_importer);
  await_used_on(1, MIB);
  REQUIRE(committed_bytes() == MIB + page_bytes());
  REQUIRE(peek(memory + MIB - 1) == PATTERN);
  REQUIRE_OK(openreg_ipc_close(memory));
  REQUIRE(used_on(1) == 0);
  helper_dismiss(&other_importer);
}

CHILD_TEST(one_importer_at_a_time_reclaims) {
  helper exporter = board_with(export_apart);
  char *memory = open_memory(&board->handles[0]);
  int other_importer = openreg_proc_reopen(openreg_peer_files->file);
  uint64_t reclaim_lock = openreg_export_position(arena_bytes(), OPENREG_EXPORT_COUNT);
  REQUIRE(openreg_range_lock_try(other_importer, F_WRLCK, reclaim_lock, 1));
  helper_kill(&exporter);
  open_memory_must_fail(&board->handles[1]);
  REQUIRE(used_on(1) == FILLED && committed_bytes() >= FILLED);
  REQUIRE(close(other_importer) == 0);
  await_used_on(1, MIB);
  REQUIRE(committed_bytes() == MIB + page_bytes());
  REQUIRE_OK(openreg_ipc_close(memory));
}

CHILD_TEST(the_next_importer_to_close_releases_memory_of_a_killed_importer) {
  board_make();
  helper exporter = helper_start(export_apart),
         other_importer = helper_start(import_second_and_stay);
  helper_receive(&exporter);
  helper_step(&other_importer);
  char *memory = open_memory(&board->handles[0]);
  REQUIRE(openreg_ipc_close(memory) == OPENREG_OK && open_memory(&board->handles[0]) == memory);
  helper_kill(&exporter);
  await_used_on(1, MIB + 3 * page_bytes());
  helper_kill(&other_importer);
  REQUIRE_OK(openreg_ipc_close(memory));
  REQUIRE(used_on(1) == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(imports_outlive_an_exporter_that_exits),
      cmocka_unit_test(imports_outlive_an_exporter_that_is_killed),
      cmocka_unit_test(handles_of_a_process_that_ended_are_refused),
      cmocka_unit_test(unimported_memory_is_released_when_the_exporter_ends),
      cmocka_unit_test(importers_do_not_release_each_others_memory),
      cmocka_unit_test(one_importer_at_a_time_reclaims),
      cmocka_unit_test(the_next_importer_to_close_releases_memory_of_a_killed_importer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
